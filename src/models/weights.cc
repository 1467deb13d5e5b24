#include "models/weights.h"

#include <algorithm>

#include "models/gguf_config.h"
#include "models/gguf_load.h"
#include "models/vocabulary.h"

namespace lode {
namespace {

// Buffers that some files carry and no model needs, and the head of a tied model.
bool may_ignore(std::string_view name, bool tied_head) {
  if (name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
      name.ends_with(".attn.masked_bias")) {
    return true;
  }
  return tied_head && name == "lm_head.weight";
}

// A panel of rows at a time, so that few floats exist beside the quantised model; a file's transpose, whose
// rows lie all over it, as a whole.
void quantize_tensor(Context& context, const WeightSet& weights, TensorTarget target,
                     const Parameter& parameter) {
  constexpr std::int64_t kPanel = std::int64_t{1} << 20;  // values
  const std::int64_t stored = target.transposed ? parameter.rows : target.shape.front();
  const std::int64_t rows =
      target.transposed ? stored : std::clamp<std::int64_t>(kPanel / parameter.cols, 1, stored);
  const Tensor panel(context.memory, MemoryTag::workspace, DType::f32, rows, parameter.cols);
  for (std::int64_t first = 0; first < stored; first += rows) {
    target.view = panel.view().slice_rows(0, std::min(rows, stored - first));
    target.first_row = first;
    load_tensors(weights, {target}, {context.kernel.threads, [](std::string_view) { return true; }});
    parameter.write(context, target.view, first);
  }
}

// Where each base parameter comes from; both lists have the same order.
struct Places {
  std::vector<TensorTarget> targets;
  std::vector<const Parameter*> parameters;
};

Places find_places(const WeightSet& weights, const ModelConfig& config, const Decoder& decoder) {
  // Some GPT-2 files leave the prefix out.
  constexpr std::string_view kPrefix = "transformer.";
  const bool bare = config.names.embedding.starts_with(kPrefix) &&
                    !weights.tensors().contains(config.names.embedding) &&
                    weights.tensors().contains(config.names.embedding.substr(kPrefix.size()));
  Places places;
  for (const Parameter& parameter : decoder.parameters().all()) {
    if (parameter.role != ParameterRole::base) continue;
    const Parameter stored = stored_part(config, parameter);
    TensorTarget target{stored.name, stored.file_shape(), stored.quantized() ? View{} : stored.values(),
                        stored.layout == FileLayout::transposed && !stored.vector};
    if (bare && target.name.starts_with(kPrefix)) target.name.erase(0, kPrefix.size());
    places.targets.push_back(std::move(target));
    places.parameters.push_back(&parameter);
  }
  return places;
}

}  // namespace

std::vector<std::string> find_weight_problems(FileSystem& files, const std::string& path,
                                              const ModelConfig& config, const Decoder& decoder) {
  if (const auto gguf = find_gguf(files, path))
    return find_gguf_problems(GgufFile(files, *gguf), config, decoder);
  const WeightSet weights(files, path);
  const bool tied = decoder.spec().tied_head;
  return find_load_problems(weights, find_places(weights, config, decoder).targets,
                            {1, [tied](std::string_view name) { return may_ignore(name, tied); }});
}

void load_model_weights(FileSystem& files, const std::string& path, const ModelConfig& config,
                        Decoder& decoder, Context& context) {
  if (const auto gguf = find_gguf(files, path))
    return load_gguf_weights(GgufFile(files, *gguf), config, decoder, context);
  const WeightSet weights(files, path);
  const auto& [targets, parameters] = find_places(weights, config, decoder);
  const bool tied = decoder.spec().tied_head;
  load_tensors(weights, targets,
               {context.kernel.threads, [tied](std::string_view name) { return may_ignore(name, tied); }});
  for (const auto& storage : decoder.parameters().storages()) storage->changed(false);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (parameters[i]->quantized()) quantize_tensor(context, weights, targets[i], *parameters[i]);
  }
  fill_new_rows(context, config, decoder);
  decoder.parameters().reset_copies(context);
}

std::vector<TensorSpec> file_tensors(const ParameterList& parameters, DType dtype) {
  std::vector<TensorSpec> specs;
  for (const Parameter& parameter : parameters.all()) {
    specs.push_back({parameter.name, dtype, parameter.file_shape(),
                     parameter.layout == FileLayout::transposed && !parameter.vector});
  }
  return specs;
}

std::string short_parameter_count(std::int64_t count) {
  const auto n = static_cast<double>(count);
  if (n >= 1e9) return format("{:.2f}B", n / 1e9);
  if (n >= 1e6) return format("{:.1f}M", n / 1e6);
  return format("{:.0f}k", n / 1e3);
}

}  // namespace lode
