#include "models/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numbers>

#include "models/gguf_names.h"

namespace lode {
namespace {

// f32 values are shown with the fewest digits that mean the same: 1e-05, not 9.999999747378752e-06.
double shortest(double value) {
  const double rounded = std::strtod(format("{:.7g}", value).c_str(), nullptr);
  return static_cast<float>(rounded) == static_cast<float>(value) ? rounded : value;
}

// Keys below the architecture's name.
class Metadata {
 public:
  Metadata(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  std::string key(std::string_view name) const { return format("{}.{}", architecture_, name); }
  std::optional<std::int64_t> integer(std::string_view name) const {
    const std::string full = key(name);
    const GgufField* field = file_.find_field(full);
    if (field == nullptr || field->type != GgufType::array) return file_.integer(full);
    const std::vector<std::int64_t> values = file_.integers(full);
    if (values.empty() || std::ranges::any_of(values, [&](std::int64_t v) { return v != values[0]; }))
      refuse(name, "differs from layer to layer, which is not supported");
    return values[0];
  }
  std::int64_t needed(std::string_view name) const {
    const auto value = integer(name);
    if (!value) refuse(name, "is missing");
    return *value;
  }
  std::optional<double> number(std::string_view name) const { return file_.number(key(name)); }
  std::optional<std::string_view> text(std::string_view name) const { return file_.text(key(name)); }
  [[noreturn]] void refuse(std::string_view name, std::string_view reason) const {
    fail(ErrorKind::data, "{}: key \"{}\" {}", file_.path(), key(name), reason);
  }
  const GgufFile& file() const { return file_; }

 private:
  const GgufFile& file_;
  std::string architecture_;
};

const GgufTensor& needed_tensor(const GgufFile& file, std::string_view name, std::size_t rank) {
  const GgufTensor* tensor = file.find(name);
  if (tensor == nullptr) fail(ErrorKind::data, "{}: the tensor \"{}\" is missing", file.path(), name);
  if (tensor->shape.size() != rank)
    fail(ErrorKind::data, "{}: tensor \"{}\": {} dimensions, expected {}", file.path(), name,
         tensor->shape.size(), rank);
  return *tensor;
}

// Only the divisors are in the file; the usual settings must give them.
Json llama3_scaling(const GgufFile& file, const GgufTensor& tensor, double theta) {
  constexpr double kLow = 1, kHigh = 4, kOriginal = 8192;
  std::vector<float> found(tensor.bytes.size() / sizeof(float));
  if (tensor.format() != QuantFormat::f32 || found.empty())
    fail(ErrorKind::data, "{}: tensor \"{}\": expected F32, found {}", file.path(), tensor.name,
         tensor.type_name());
  std::memcpy(found.data(), tensor.bytes.data(), tensor.bytes.size());
  const double factor = static_cast<double>(*std::ranges::max_element(found));
  const std::vector<float> expected =
      llama3_divisors(theta, static_cast<std::int64_t>(2 * found.size()), factor, kLow, kHigh, kOriginal);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!(std::abs(found[i] - expected[i]) <= 1e-3f * expected[i])) {
      fail(ErrorKind::data,
           "{}: tensor \"{}\": element {} is {}, not what rope scaling llama3 with factor {} gives ({}); "
           "other "
           "scalings of this kind are not supported",
           file.path(), tensor.name, i, found[i], factor, expected[i]);
    }
  }
  return Json::object({{"rope_type", "llama3"},
                       {"factor", factor},
                       {"low_freq_factor", kLow},
                       {"high_freq_factor", kHigh},
                       {"original_max_position_embeddings", static_cast<std::int64_t>(kOriginal)}});
}

void add_rope(const Metadata& data, std::int64_t head_dim, Json& json) {
  const double theta = shortest(data.number("rope.freq_base").value_or(10000));
  json["rope_theta"] = theta;
  if (data.integer("rope.dimension_count").value_or(head_dim) != head_dim)
    data.refuse("rope.dimension_count", format("is not the size of a head, {}", head_dim));
  const std::string_view type = data.text("rope.scaling.type").value_or("none");
  if (type == "linear" || type == "yarn") {
    Json scaling = Json::object({{"rope_type", type}});
    const auto factor = data.number("rope.scaling.factor");
    if (!factor || !(*factor > 0)) data.refuse("rope.scaling.factor", "is missing or not above 0");
    scaling["factor"] = shortest(*factor);
    if (const auto original = data.integer("rope.scaling.original_context_length"))
      scaling["original_max_position_embeddings"] = *original;
    if (const auto scale = data.number("rope.scaling.attn_factor"); scale && *scale != 1 && type == "yarn")
      scaling["attention_factor"] = *scale * (0.1 * std::log(*factor) + 1);
    json["rope_scaling"] = std::move(scaling);
  } else if (type != "none") {
    data.refuse("rope.scaling.type", format("is \"{}\"; known: none, linear, yarn", type));
  }
  if (const GgufTensor* tensor = data.file().find("rope_freqs.weight"))
    json["rope_scaling"] = llama3_scaling(data.file(), *tensor, theta);
}

void add_llama_like(const Metadata& data, std::string_view family, Json& json) {
  const GgufFile& file = data.file();
  const std::int64_t hidden = data.needed("embedding_length"), heads = data.needed("attention.head_count");
  json["vocab_size"] = needed_tensor(file, "token_embd.weight", 2).shape[0];
  json["hidden_size"] = hidden;
  json["intermediate_size"] = data.needed("feed_forward_length");
  json["num_hidden_layers"] = data.needed("block_count");
  json["num_attention_heads"] = heads;
  json["num_key_value_heads"] = data.integer("attention.head_count_kv").value_or(heads);
  json["max_position_embeddings"] = data.needed("context_length");
  const auto eps = data.number("attention.layer_norm_rms_epsilon");
  if (!eps) data.refuse("attention.layer_norm_rms_epsilon", "is missing");
  json["rms_norm_eps"] = shortest(*eps);
  if (heads <= 0) data.refuse("attention.head_count", "must be above 0");
  const std::int64_t head_dim = data.integer("attention.key_length").value_or(hidden / heads);
  if (data.integer("attention.value_length").value_or(head_dim) != head_dim)
    data.refuse("attention.value_length", "differs from attention.key_length, which is not supported");
  json["head_dim"] = head_dim;
  json["tie_word_embeddings"] = has_tied_head(file);
  add_rope(data, head_dim, json);
  if (family == "gemma3_text") return;
  json["hidden_act"] = "silu";
  json["attention_bias"] = file.find("blk.0.attn_q.bias") != nullptr;
  if (family == "llama" || family == "smollm3") json["mlp_bias"] = file.find("blk.0.ffn_up.bias") != nullptr;
}

void add_gemma3(const Metadata& data, Json& json) {
  constexpr std::int64_t kLayersOf27B = 62;  // the one size whose scores are scaled otherwise
  const std::int64_t head_dim = json.at("head_dim").as_int();
  const bool largest = json.at("num_hidden_layers").as_int() == kLayersOf27B;
  json["query_pre_attn_scalar"] =
      largest ? json.at("hidden_size").as_int() / json.at("num_attention_heads").as_int() : head_dim;
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["sliding_window"] = data.needed("attention.sliding_window");
  json["sliding_window_pattern"] = 6;
  json["rope_local_base_freq"] = 10000.0;
  if (data.number("rope.freq_base") == std::nullopt) json["rope_theta"] = 1e6;
  for (const std::string key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (const auto cap = data.number(key)) json[key] = *cap;
  }
}

void add_gpt2(const Metadata& data, Json& json) {
  json["vocab_size"] = needed_tensor(data.file(), "token_embd.weight", 2).shape[0];
  json["n_embd"] = data.needed("embedding_length");
  json["n_inner"] = data.needed("feed_forward_length");
  json["n_layer"] = data.needed("block_count");
  json["n_head"] = data.needed("attention.head_count");
  json["n_positions"] = needed_tensor(data.file(), "position_embd.weight", 2).shape[0];
  json["layer_norm_epsilon"] = shortest(data.number("attention.layer_norm_epsilon").value_or(1e-5));
  json["activation_function"] = "gelu_new";
  json["tie_word_embeddings"] = has_tied_head(data.file());
}

}  // namespace

std::vector<float> llama3_divisors(double theta, std::int64_t rotary_dim, double factor, double low,
                                   double high, double original) {
  std::vector<float> divisors;
  for (std::int64_t j = 0; j < rotary_dim / 2; ++j) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(rotary_dim));
    const double length = 2 * std::numbers::pi / frequency;
    double divisor = 1;
    if (length > original / low) {
      divisor = factor;
    } else if (length >= original / high) {
      const double smooth = (original / length - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

bool has_tied_head(const GgufFile& file) {
  const GgufTensor *head = file.find("output.weight"), *embedding = file.find("token_embd.weight");
  if (head == nullptr) return true;
  return embedding != nullptr && head->type == embedding->type && head->shape == embedding->shape &&
         std::ranges::equal(head->bytes, embedding->bytes);
}

std::optional<std::string> find_gguf(FileSystem& files, const std::string& path) {
  if (path.ends_with(".gguf")) return path;
  if (!files.is_directory(path) || files.exists(join_path(path, "config.json"))) return std::nullopt;
  std::vector<std::string> found;
  for (const std::string& name : files.list(path)) {
    if (!name.ends_with(".gguf")) continue;
    const bool later_part =
        name.find("-of-") != std::string::npos && name.find("-00001-of-") == std::string::npos;
    if (!later_part) found.push_back(name);
  }
  if (found.empty()) return std::nullopt;
  if (found.size() > 1) {
    std::string list;
    for (const std::string& name : found) list += (list.empty() ? "" : ", ") + name;
    fail(ErrorKind::data, "{}: several GGUF models ({}); name one of them", path, list);
  }
  return join_path(path, found[0]);
}

Json gguf_config(const GgufFile& file) {
  if (const auto type = file.text("general.type"); type && *type != "model")
    fail(ErrorKind::data, "{}: general.type is \"{}\"; expected a model", file.path(), *type);
  const auto architecture = file.text("general.architecture");
  if (!architecture) fail(ErrorKind::data, "{}: key \"general.architecture\" is missing", file.path());
  std::string family(family_of_gguf(*architecture));
  if (family.empty()) {
    fail(
        ErrorKind::data,
        "{}: general.architecture \"{}\" is not supported; known: llama, qwen2, qwen3, gemma3, gpt2, smollm3",
        file.path(), architecture->substr(0, 100));
  }
  const Metadata data(file, std::string(*architecture));
  if (data.integer("expert_count").value_or(0) != 0)
    data.refuse("expert_count", "is not 0; mixtures of experts are not supported");
  if (data.needed("block_count") > static_cast<std::int64_t>(file.tensors().size()))
    data.refuse("block_count", format("is more than the file's {} tensors", file.tensors().size()));
  const std::int64_t window = family == "llama" ? data.integer("attention.sliding_window").value_or(0) : 0;
  if (window > 0) family = "mistral";
  Json json = Json::object({{"model_type", family},
                            {"architectures", Json::Array{find_family(family, file.path()).architecture}}});
  if (family == "gpt2") {
    add_gpt2(data, json);
  } else {
    add_llama_like(data, family, json);
  }
  if (family == "gemma3_text") add_gemma3(data, json);
  if (family == "mistral") json["sliding_window"] = window;
  for (const std::string name : {"bos", "eos"}) {
    if (const auto id = file.integer(format("tokenizer.ggml.{}_token_id", name)))
      json[format("{}_token_id", name)] = *id;
  }
  return json;
}

}  // namespace lode
