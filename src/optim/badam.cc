// BAdam (Luo et al. 2024, arXiv 2404.02827): AdamW on one block of parameters at a time, a layer of the
// model; the others are frozen meanwhile, without state and gradient. After switch_interval steps the next
// block begins, with moments and time from 0. Parameters outside of the layers are never trained. Which block
// a step trains follows from its number, so that a resumed run needs nothing else.
#include <algorithm>
#include <charconv>
#include <optional>

#include "core/rng.h"
#include "optim/optimizers.h"

namespace lode {
namespace {

// The layer in a name like "model.layers.3.mlp.up_proj.weight": its first numeric part.
std::optional<std::int64_t> layer_of(std::string_view name) {
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('.'));
    std::int64_t layer = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), layer);
    if (error == std::errc() && end == part.data() + part.size()) return layer;
    name.remove_prefix(std::min(name.size(), part.size() + 1));
  }
  return std::nullopt;
}

class Badam : public Optimizer {
 public:
  explicit Badam(const BadamOptions& options) : options_(options), adamw_(make_adamw(options.adamw)) {}

  std::vector<std::string> state_names(const Parameter& parameter) const override {
    return adamw_->state_names(parameter);
  }
  std::vector<Tensor> init_one(Context& context, const Parameter& parameter) const override {
    return adamw_->init_one(context, parameter);
  }
  bool has_state_at_start() const override { return false; }

  void step_one(Context& context, const Parameter& parameter, std::vector<Tensor>& state,
                const StepArguments& arguments) const override {
    StepArguments own = arguments;
    own.time = time_in_block(arguments.time);
    adamw_->step_one(context, parameter, state, own);
  }

  // A block that goes on keeps its state.
  void prepare(Context& context, ParameterList& parameters, std::vector<std::vector<Tensor>>& states,
               std::int64_t time) const override {
    const auto& all = parameters.all();
    const std::vector<std::int64_t> blocks = blocks_of(all);
    const std::int64_t active = blocks[index_of_block(time, static_cast<std::int64_t>(blocks.size()))];
    const bool fresh = time_in_block(time) == 1;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].trainable()) continue;
      const bool on = layer_of(all[i].name) == active;
      if (!on || fresh) states[i].clear();
      if ((all[i].storage->gradient() != nullptr) != on) all[i].storage->train(on);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].trainable() && layer_of(all[i].name) == active && states[i].empty())
        states[i] = init_one(context, all[i]);
    }
  }

 private:
  std::int64_t time_in_block(std::int64_t time) const {
    return options_.order == BlockOrder::fixed ? time : (time - 1) % options_.switch_interval + 1;
  }

  static std::vector<std::int64_t> blocks_of(const std::vector<Parameter>& all) {
    std::vector<std::int64_t> blocks;
    for (const Parameter& parameter : all) {
      if (const auto layer = layer_of(parameter.name); parameter.trainable() && layer)
        blocks.push_back(*layer);
    }
    std::ranges::sort(blocks);
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    if (blocks.empty()) fail(ErrorKind::usage, "BAdam: no trained parameter is part of a numbered layer");
    return blocks;
  }

  std::size_t index_of_block(std::int64_t time, std::int64_t count) const {
    const bool downwards = options_.order == BlockOrder::descending;
    const std::int64_t start = options_.start_block >= 0 ? options_.start_block : downwards ? count - 1 : 0;
    if (start >= count) {
      fail(ErrorKind::usage, "BAdam: there are {} blocks, from 0; the start block is {}", count, start);
    }
    const std::int64_t turn = options_.order == BlockOrder::fixed ? 0 : (time - 1) / options_.switch_interval;
    switch (options_.order) {
      case BlockOrder::ascending:
      case BlockOrder::fixed:
        return static_cast<std::size_t>((start + turn) % count);
      case BlockOrder::descending:
        return static_cast<std::size_t>(((start - turn) % count + count) % count);
      case BlockOrder::random: {
        const auto order = random_permutation(static_cast<std::uint32_t>(count), options_.seed,
                                              format("badam/{}", turn / count));
        return order[static_cast<std::size_t>(turn % count)];
      }
    }
    return 0;
  }

  BadamOptions options_;
  std::unique_ptr<Optimizer> adamw_;
};

}  // namespace

std::unique_ptr<Optimizer> make_badam(const BadamOptions& options) {
  if (options.switch_interval < 1) fail(ErrorKind::usage, "BAdam: the switch interval is at least 1 step");
  return std::make_unique<Badam>(options);
}

}  // namespace lode
