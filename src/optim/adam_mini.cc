// Adam-mini (Zhang et al. 2024, arXiv 2406.16793): AdamW whose second moment is one number a block of
// elements,
//   v <- b2 v + (1 - b2) mean over the block of g^2
// A block is a head of q_proj and k_proj, a row of every other matrix (a neuron, a token), the whole of a
// norm's weight, and a single element of a bias.
#include <cmath>

#include "autograd/profile.h"
#include "kernels/optimizer.h"
#include "optim/optimizers.h"
#include "optim/state.h"

namespace lode {
namespace {

class AdamMini : public Optimizer {
 public:
  explicit AdamMini(const AdamMiniOptions& options) : options_(options), adamw_(make_adamw(options.adamw)) {}

  std::vector<std::string> state_names(const Parameter& parameter) const override {
    if (is_bias(parameter)) return {"m", "v"};
    return {"m", "vmean"};
  }

  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const override {
    if (is_bias(parameter)) return adamw_->init_one(context, parameter);
    return zeros(context, {{parameter.rows, parameter.cols}, {parameter.rows / rows_of_block(parameter), 1}});
  }

  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const override {
    if (is_bias(parameter)) return adamw_->step_one(context, parameter, state, arguments);
    OpTimer timer(context, "adam mini", 0, static_cast<double>(parameter.numel()) * 28);
    const AdamWOptions& o = options_.adamw;
    const auto time = static_cast<double>(arguments.time);
    momentum_step(context.kernel, {.grad = parameter.gradient(),
                                   .momentum = state[0].view(),
                                   .keep = o.beta1,
                                   .add = 1 - o.beta1,
                                   .grad_scale = arguments.grad_scale});
    Workspace::Scope workspace(*context.kernel.workspace);
    float* row = workspace.take<float>(parameter.rows);
    row_squares(context.kernel, parameter.gradient(), row);
    const double rate = arguments.learning_rate / (1 - std::pow(o.beta1, time));
    const double root = 1 / std::sqrt(1 - std::pow(o.beta2, time));
    const double scale = static_cast<double>(arguments.grad_scale) * arguments.grad_scale;
    const std::int64_t rows = rows_of_block(parameter);
    float* v = state[1].view().row<float>(0);
    for (std::int64_t block = 0; block < state[1].numel(); ++block) {
      double squares = 0;
      for (std::int64_t r = block * rows; r < (block + 1) * rows; ++r) squares += row[r];
      const double mean = squares * scale / static_cast<double>(rows * parameter.cols);
      v[block] = static_cast<float>(o.beta2 * v[block] + (1 - o.beta2) * mean);
      const auto factor =
          static_cast<float>(rate / (std::sqrt(static_cast<double>(v[block])) * root + o.eps));
      std::fill_n(row + block * rows, rows, factor);
    }
    update_weights(context.kernel,
                   {.weight = arguments.weight,
                    .update = state[0].view(),
                    .row = row,
                    .before = 1 - arguments.learning_rate * (parameter.decay ? o.weight_decay : 0.0)});
  }

 private:
  static bool is_bias(const Parameter& parameter) { return parameter.name.ends_with("bias"); }

  std::int64_t rows_of_block(const Parameter& parameter) const {
    const std::string module = parameter.module();
    const bool heads =
        !parameter.vector && (names_module("q_proj", module) || names_module("k_proj", module));
    const std::int64_t size = options_.head_size;
    return heads && size > 0 && parameter.rows % size == 0 ? size : 1;
  }

  AdamMiniOptions options_;
  std::unique_ptr<Optimizer> adamw_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam_mini(const AdamMiniOptions& options) {
  return std::make_unique<AdamMini>(options);
}

}  // namespace lode
