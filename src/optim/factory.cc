#include "optim/optimizers.h"

namespace lode {
namespace {

std::unique_ptr<Optimizer> make(const AdamWOptions& options) {
  return make_adamw(options);
}
std::unique_ptr<Optimizer> make(const AdamW8bitOptions& options) {
  return make_adamw_8bit(options);
}
std::unique_ptr<Optimizer> make(const SgdOptions& options) {
  return make_sgd(options);
}
std::unique_ptr<Optimizer> make(const LionOptions& options) {
  return make_lion(options);
}
std::unique_ptr<Optimizer> make(const Lion8bitOptions& options) {
  return make_lion_8bit(options);
}
std::unique_ptr<Optimizer> make(const AdafactorOptions& options) {
  return make_adafactor(options);
}
std::unique_ptr<Optimizer> make(const AdamMiniOptions& options) {
  return make_adam_mini(options);
}
std::unique_ptr<Optimizer> make(const MuonOptions& options) {
  return make_muon(options);
}
std::unique_ptr<Optimizer> make(const GaloreOptions& options) {
  return make_galore(options);
}
std::unique_ptr<Optimizer> make(const ApolloOptions& options) {
  return make_apollo(options);
}
std::unique_ptr<Optimizer> make(const BadamOptions& options) {
  return make_badam(options);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  return std::visit([](const auto& chosen) { return make(chosen); }, options);
}

}  // namespace lode
