#include "models/gguf_export.h"

#include <algorithm>
#include <cmath>

#include "io/gguf_types.h"
#include "models/gguf_config.h"
#include "models/gguf_names.h"
#include "models/peft.h"

namespace lode {
namespace {

using Scaling = RotarySpec::Scaling;

class Fields {
 public:
  explicit Fields(std::string architecture) : architecture_(std::move(architecture)) {}
  void add(std::string_view key, GgufValue value) {
    fields_.emplace_back(format("{}.{}", architecture_, key), std::move(value));
  }
  void count(std::string_view key, std::int64_t value) { add(key, static_cast<std::uint32_t>(value)); }
  void number(std::string_view key, double value) { add(key, static_cast<float>(value)); }
  GgufFields& all() { return fields_; }

 private:
  std::string architecture_;
  GgufFields fields_;
};

[[noreturn]] void refuse(const ModelConfig& config, std::string_view what) {
  fail(ErrorKind::data, "{}: {}, which GGUF cannot say for {}; export safetensors instead", config.file, what,
       gguf_architecture(config));
}

double yarn_default(double factor) {
  return factor <= 1 ? 1 : 0.1 * std::log(factor) + 1;
}

void add_rope(const ModelConfig& config, Fields& fields) {
  const RotarySpec& rotary = config.spec.rotary;
  fields.number("rope.freq_base", rotary.theta);
  fields.count("rope.dimension_count", rotary.rotary_dim);
  switch (rotary.scaling) {
    case Scaling::none:
    case Scaling::llama3:  // a tensor of divisors
      return;
    case Scaling::linear:
      fields.add("rope.scaling.type", std::string("linear"));
      return fields.number("rope.scaling.factor", rotary.factor);
    case Scaling::yarn:
      if (rotary.beta_fast != 32 || rotary.beta_slow != 1 || !rotary.truncate)
        refuse(config, "rope_scaling has other betas or no truncation");
      fields.add("rope.scaling.type", std::string("yarn"));
      fields.number("rope.scaling.factor", rotary.factor);
      fields.count("rope.scaling.original_context_length", rotary.original_max_positions);
      if (const double usual = yarn_default(rotary.factor); std::abs(rotary.attention_factor - usual) > 1e-6)
        fields.number("rope.scaling.attn_factor", rotary.attention_factor / usual);
      return;
    case Scaling::dynamic:
    case Scaling::longrope:
      refuse(config, "rope_type is dynamic or longrope");
  }
}

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::abs(b);
}

// What readers assume of an architecture without being told.
void check_assumptions(const ModelConfig& config) {
  const DecoderSpec& spec = config.spec;
  const bool gemma = spec.model_type == "gemma3_text", gpt2 = spec.model_type == "gpt2";
  constexpr std::int64_t kLayersOf27B = 62;
  const double width = gemma && spec.layers == kLayersOf27B
                           ? static_cast<double>(spec.hidden) / static_cast<double>(spec.heads)
                           : static_cast<double>(spec.head_dim);
  if (!near(spec.attention_scale, 1 / std::sqrt(width))) refuse(config, "scores have a scale of their own");
  if (spec.scale_by_inverse_layer) refuse(config, "scores are scaled by layer");
  const Activation usual = gemma || gpt2 ? Activation::gelu_tanh : Activation::silu;
  if (spec.activation != usual) refuse(config, "the activation is another");
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    const LayerSpec layer = spec.layer(i);
    const bool sixth = (i + 1) % 6 == 0, fourth = (i + 1) % 4 == 0;
    bool fits = layer.window == 0 && layer.rotary == LayerRotary::global;
    if (gemma)
      fits =
          layer.rotary == (sixth ? LayerRotary::global : LayerRotary::local) && (layer.window == 0) == sixth;
    if (spec.model_type == "mistral")
      fits = layer.rotary == LayerRotary::global && layer.window == spec.layer(0).window;
    if (spec.model_type == "smollm3")
      fits = layer.window == 0 && layer.rotary == (fourth ? LayerRotary::none : LayerRotary::global);
    if (!fits) refuse(config, format("layer {} has another attention window or other positions", i));
  }
  if (gemma && (spec.local_rotary.theta != 10000 || spec.local_rotary.scaling != Scaling::none))
    refuse(config, "sliding layers have other positions");
}

GgufFields model_fields(const ModelConfig& config, QuantFormat format, const std::string& name) {
  check_assumptions(config);
  const DecoderSpec& spec = config.spec;
  const std::string architecture = gguf_architecture(config);
  Fields fields(architecture);
  fields.all() = {{"general.architecture", architecture},
                  {"general.type", std::string("model")},
                  {"general.name", name},
                  {"general.file_type", gguf_file_type(format)}};
  if (format > QuantFormat::bf16) fields.all().emplace_back("general.quantization_version", std::uint32_t{2});
  fields.count("block_count", spec.layers);
  fields.count("context_length", spec.max_positions);
  fields.count("embedding_length", spec.hidden);
  fields.count("feed_forward_length", spec.intermediate);
  fields.count("attention.head_count", spec.heads);
  fields.count("vocab_size", spec.vocab_size);
  if (spec.norm == NormKind::layer) {
    fields.number("attention.layer_norm_epsilon", static_cast<double>(spec.norm_eps));
    return fields.all();
  }
  fields.count("attention.head_count_kv", spec.kv_heads);
  fields.number("attention.layer_norm_rms_epsilon", static_cast<double>(spec.norm_eps));
  fields.count("attention.key_length", spec.head_dim);
  fields.count("attention.value_length", spec.head_dim);
  add_rope(config, fields);
  std::int64_t window = 0;
  for (std::int64_t i = 0; i < spec.layers; ++i) window = std::max(window, spec.layer(i).window);
  if (window > 0) fields.count("attention.sliding_window", window);
  return fields.all();
}

constexpr std::string_view kHead = "output.weight";

bool is_table(const Parameter& parameter) {
  return parameter.kind == ModuleKind::embedding || parameter.kind == ModuleKind::head;
}

QuantFormat choose(const Parameter& parameter, QuantFormat wanted) {
  if (parameter.vector || parameter.kind == ModuleKind::positions || parameter.kind == ModuleKind::norm)
    return QuantFormat::f32;
  if (is_table(parameter) && wanted > QuantFormat::bf16) wanted = QuantFormat::q8_0;
  if (fits(wanted, parameter.cols)) return wanted;
  return fits(QuantFormat::q8_0, parameter.cols) ? QuantFormat::q8_0 : QuantFormat::f16;
}

// Values of GGUF's rows [first, first + out.rows): of one head when queries and keys are in pairs there.
void read_panel(const Parameter& parameter, const GgufPlace& place, const RowReader& rows, std::int64_t first,
                View out, std::vector<float>& scratch) {
  if (place.heads == 0 || parameter.vector) {
    rows(parameter, place.name == kHead, first, out);
  } else {
    scratch.resize(static_cast<std::size_t>(out.numel()));
    const View head{scratch.data(), DType::f32, out.rows, out.cols, out.cols};
    rows(parameter, false, first, head);
    for (std::int64_t r = 0; r < out.rows; ++r)
      std::copy_n(head.row<float>(row_within_head(r, out.rows)), out.cols, out.row<float>(r));
  }
  if (!parameter.vector) return;
  if (place.heads > 0) {
    const std::vector<float> same(out.row<float>(0), out.row<float>(0) + out.cols);
    const std::int64_t dim = out.cols / place.heads;
    for (std::int64_t i = 0; i < out.cols; ++i)
      out.row<float>(0)[i] = same[static_cast<std::size_t>(i / dim * dim + row_within_head(i % dim, dim))];
  }
  for (std::int64_t i = 0; i < out.cols; ++i) out.row<float>(0)[i] += place.offset;
}

void write_parameter(Context& context, GgufWriter& writer, const Parameter& parameter, const GgufPlace& place,
                     QuantFormat format, const RowReader& rows) {
  constexpr std::int64_t kValues = std::int64_t{1} << 20;
  std::int64_t panel = std::clamp<std::int64_t>(kValues / std::max<std::int64_t>(parameter.cols, 1), 1,
                                                std::max<std::int64_t>(parameter.rows, 1));
  if (place.heads > 0 && !parameter.vector) panel = parameter.rows / place.heads;
  std::vector<float> values(static_cast<std::size_t>(panel * parameter.cols)), scratch;
  std::vector<std::byte> bytes(static_cast<std::size_t>(panel * row_bytes(format, parameter.cols)));
  for (std::int64_t r = 0; r < parameter.rows; r += panel) {
    const std::int64_t count = std::min(panel, parameter.rows - r);
    const View view{values.data(), DType::f32, count, parameter.cols, parameter.cols};
    read_panel(parameter, place, rows, r, view, scratch);
    quantize_rows(context.kernel, format, view, bytes.data());
    writer.write(std::span(bytes).first(static_cast<std::size_t>(count * row_bytes(format, parameter.cols))));
  }
}

}  // namespace

GgufModel plan_gguf(const ModelConfig& config, const Decoder& decoder, QuantFormat format,
                    const std::string& name) {
  if (!can_quantize(format) || find_gguf_block(format) == nullptr)
    fail(ErrorKind::usage, "{} cannot be written; known: F32, F16, BF16, Q8_0, Q4_0, Q4_K", name_of(format));
  GgufModel model;
  model.fields = model_fields(config, format, name);
  const auto places = gguf_places(config);
  const auto add = [&](const Parameter& parameter, const std::string& there) {
    const QuantFormat chosen = choose(parameter, format);
    const Shape shape = parameter.vector ? Shape{parameter.cols} : Shape{parameter.rows, parameter.cols};
    model.specs.push_back({there, shape, chosen});
    model.parameters.push_back(&parameter);
    // Tables of 4-bit files are Q8_0 in any case.
    const bool wanted = chosen == QuantFormat::q8_0 && is_table(parameter);
    if (!parameter.vector && !wanted && !fits(format, parameter.cols)) {
      model.substitutions.push_back(lode::format("{}: {}, its rows of {} values fit no blocks of {}", there,
                                                 name_of(chosen), parameter.cols, name_of(format)));
    }
  };
  for (const Parameter& parameter : decoder.parameters().all()) {
    if (parameter.role == ParameterRole::base) add(parameter, places.at(parameter.name).name);
  }
  model.untied_head = unties_head(decoder);
  if (model.untied_head) add(*decoder.parameters().find(config.names.embedding), std::string(kHead));
  if (config.spec.rotary.scaling == Scaling::llama3)
    model.specs.push_back({"rope_freqs.weight", {config.spec.rotary.rotary_dim / 2}, QuantFormat::f32});
  return model;
}

std::uint64_t write_gguf(Context& context, FileSystem& files, const std::string& path,
                         const ModelConfig& config, const GgufModel& model, const GgufFields& tokenizer,
                         const RowReader& rows) {
  GgufFields fields = model.fields;
  fields.insert(fields.end(), tokenizer.begin(), tokenizer.end());
  const auto places = gguf_places(config);
  GgufWriter writer(files, path, fields, model.specs);
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = *model.parameters[i];
    const bool head = model.untied_head && i + 1 == model.parameters.size();
    write_parameter(context, writer, parameter,
                    head ? GgufPlace{std::string(kHead)} : places.at(parameter.name), model.specs[i].format,
                    rows);
  }
  const RotarySpec& rotary = config.spec.rotary;
  if (rotary.scaling == Scaling::llama3) {
    const std::vector<float> divisors =
        llama3_divisors(rotary.theta, rotary.rotary_dim, rotary.factor, rotary.low_freq_factor,
                        rotary.high_freq_factor, static_cast<double>(rotary.original_max_positions));
    writer.write(std::as_bytes(std::span(divisors)));
  }
  return writer.finish();
}

std::uint64_t write_gguf_adapter(Context& context, FileSystem& files, const std::string& path,
                                 const ModelConfig& config, const Decoder& decoder,
                                 const std::string& base_name) {
  const ParameterList& list = decoder.parameters();
  if (!list.copies().empty())
    fail(ErrorKind::data, "{}: a GGUF adapter holds no full copies of modules (\"{}\"); merge it instead",
         path, list.copies().front().module);
  if (list.pairs().empty()) fail(ErrorKind::data, "{}: there is no low-rank adapter to write", path);
  const auto places = gguf_places(config);
  std::vector<GgufTensorSpec> specs;
  for (const LoraPair& pair : list.pairs()) {
    if (pair.embedding)
      fail(ErrorKind::data, "{}: a GGUF adapter holds no pair on embeddings (\"{}\"); merge it instead", path,
           pair.module);
    const Parameter &a = list.all()[pair.a], &b = list.all()[pair.b];
    const std::string& name = places.at(list.all()[pair.base].name).name;
    specs.push_back({name + ".lora_a", {a.rows, a.cols}, QuantFormat::f32});
    specs.push_back({name + ".lora_b", {b.rows, b.cols}, QuantFormat::f32});
  }
  // Readers scale every pair by alpha / its rank; what differs from that goes into B.
  const LoraPair& first = list.pairs().front();
  const double alpha = static_cast<double>(first.scale) * static_cast<double>(first.rank);
  GgufWriter writer(files, path,
                    {{"general.architecture", gguf_architecture(config)},
                     {"general.type", std::string("adapter")},
                     {"general.name", base_name + " adapter"},
                     {"adapter.type", std::string("lora")},
                     {"adapter.lora.alpha", static_cast<float>(alpha)}},
                    specs);
  for (const LoraPair& pair : list.pairs()) {
    const GgufPlace& place = places.at(list.all()[pair.base].name);
    const RowReader plain = [&](const Parameter& parameter, bool, std::int64_t from, View out) {
      parameter.read_rows(context, from, out);
    };
    const auto factor =
        static_cast<float>(static_cast<double>(pair.scale) * static_cast<double>(pair.rank) / alpha);
    const RowReader scaled = [&](const Parameter& parameter, bool, std::int64_t from, View out) {
      parameter.read_rows(context, from, out);
      for (std::int64_t r = 0; r < out.rows; ++r) {
        for (std::int64_t c = 0; c < out.cols; ++c) out.row<float>(r)[c] *= factor;
      }
    };
    write_parameter(context, writer, list.all()[pair.a], {}, QuantFormat::f32, plain);
    write_parameter(context, writer, list.all()[pair.b], {place.name, place.heads, 0}, QuantFormat::f32,
                    scaled);
  }
  return writer.finish();
}

}  // namespace lode
