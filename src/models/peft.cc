#include "models/peft.h"

#include <algorithm>
#include <set>

#include "core/file.h"
#include "io/weights.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace lode {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kCopied = ".modules_to_save";

Json read_config(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, std::string(kAdapterConfigFile));
  Json json = parse_json(files.read(path), path, {.max_depth = 16, .max_values = 100'000});
  if (!json.is_object()) fail(ErrorKind::data, "{}: expected an object, found {}", path, json.type_name());
  return json;
}

bool is_set(const Json& config, std::string_view key) {
  const Json* value = config.find(key);
  if (value == nullptr || value->is_null()) return false;
  if (value->is_bool()) return value->as_bool();
  return (!value->is_array() && !value->is_object()) || value->size() > 0;
}

// Variants whose numbers mean something else than a plain pair beside the base.
std::vector<std::string> unsupported(const Json& config) {
  std::vector<std::string> found;
  if (const Json* type = config.find("peft_type"); type == nullptr || *type != Json("LORA"))
    found.push_back(format("peft_type {}", type == nullptr ? "(none)" : type->dump()));
  for (const char* key :
       {"use_dora", "lora_bias", "use_qalora", "layer_replication", "trainable_token_indices",
        "target_parameters", "alora_invocation_tokens", "arrow_config", "use_bdlora"}) {
    if (is_set(config, key)) found.push_back(key);
  }
  if (const Json* bias = config.find("bias"); bias != nullptr && !bias->is_null() && *bias != Json("none"))
    found.push_back(format("bias {}", bias->dump()));
  // Inits that change the base: their pairs are relative to weights that are not in the base's files.
  if (const Json* init = config.find("init_lora_weights"); init != nullptr && init->is_string()) {
    const std::string& name = init->as_string();
    if (name != "gaussian" && name != "eva" && name != "orthogonal")
      found.push_back(format("init_lora_weights {}", init->dump()));
  }
  return found;
}

double number_at(const Json& config, std::string_view key, double otherwise, const std::string& folder) {
  const Json* value = config.find(key);
  if (value == nullptr || value->is_null()) return otherwise;
  if (!value->is_number())
    fail(ErrorKind::data, "{}/{}: \"{}\" is {}, expected a number", folder, kAdapterConfigFile, key,
         value->type_name());
  return value->as_double();
}

// alpha_pattern's keys are regular expressions; names with an optional ^ and escaped points are the ones
// read.
std::string plain_pattern(const std::string& key, const std::string& folder) {
  std::string name;
  for (std::size_t i = key.starts_with('^') ? 1 : 0; i < key.size(); ++i) {
    const char c = key[i];
    if (c == '\\' && i + 1 < key.size() && key[i + 1] == '.') continue;
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '.' || c == '-';
    if (!plain) {
      fail(ErrorKind::data,
           "{}/{}: alpha_pattern: the regular expression \"{}\" is not supported, only names", folder,
           kAdapterConfigFile, key);
    }
    name += c;
  }
  return name;
}

// "model.layers.0.mlp.up_proj" of a tensor that ends in `ending`; nothing otherwise.
std::optional<std::string> module_of(std::string_view tensor, std::string_view ending) {
  if (!tensor.starts_with(kPrefix) || !tensor.ends_with(ending)) return std::nullopt;
  tensor.remove_prefix(kPrefix.size());
  tensor.remove_suffix(ending.size());
  return std::string(tensor);
}

bool is_lora_name(std::string_view name) {
  return name.find(".lora_") != std::string_view::npos;
}

// PEFT writes the base of an adapted embedding beside the adapter: the base's own, and rows that were added.
constexpr std::string_view kBaseLayer = ".base_layer.weight";
bool is_base_layer(std::string_view name) {
  return name.ends_with(kBaseLayer);
}
std::string base_layer_name(std::string_view module) {
  return format("{}{}{}", kPrefix, module, kBaseLayer);
}

SafetensorsFile open_weights(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, std::string(kAdapterWeightsFile));
  if (!files.exists(path) && files.exists(join_path(folder, "adapter_model.bin"))) {
    fail(ErrorKind::data,
         "{}: has only adapter_model.bin; pickled files can run code and are never read: load and save it "
         "once "
         "with peft, which writes adapter_model.safetensors",
         folder);
  }
  return SafetensorsFile(files, path);
}

std::string file_name(const Parameter& parameter) {
  std::string name = parameter.name;
  if (parameter.role == ParameterRole::copy) name.erase(name.rfind(kCopied), kCopied.size());
  return std::string(kPrefix) + name;
}

// Of a copy that is another module's: PEFT looks for the values under both names.
std::string shared_name(const FullCopy& copy) {
  return std::string(kPrefix) + copy.module + ".weight";
}

bool is_transposed(const Parameter& parameter) {
  return parameter.layout == FileLayout::transposed && !parameter.vector;
}

void add_pattern(Json& patterns, const std::string& module, Json value) {
  patterns[module] = std::move(value);
}

Json names_of(std::vector<std::string> names) {
  std::ranges::sort(names);
  Json list = Json::array();
  for (std::string& name : names) list.push_back(std::move(name));
  return list;
}

// W[first..] += scale * B A, rows of either shape of pair.
void add_pair(Context& context, const ParameterList& parameters, const LoraPair& pair, std::int64_t first,
              View out) {
  const View a = parameters.all()[pair.a].values(), b = parameters.all()[pair.b].values();
  const View left = pair.embedding ? a : b, right = pair.embedding ? b : a;
  Tensor scaled(context.memory, MemoryTag::workspace, DType::f32, out.rows, pair.rank);
  for (std::int64_t r = 0; r < out.rows; ++r) {
    const float* from = left.row<float>(first + r);
    float* to = scaled.view().row<float>(r);
    for (std::int64_t c = 0; c < pair.rank; ++c) to[c] = pair.scale * from[c];
  }
  matmul(context.kernel,
         {.a = scaled.view(), .b = right, .transpose_b = pair.embedding, .accumulate = true, .c = out});
}

}  // namespace

AdapterSpec read_peft_spec(FileSystem& files, const std::string& folder) {
  const Json config = read_config(files, folder);
  if (const auto found = unsupported(config); !found.empty()) {
    std::string list;
    for (const std::string& entry : found) list += (list.empty() ? "" : ", ") + entry;
    fail(ErrorKind::data, "{}/{}: this adapter is of a kind that cannot be read: {}; plain LoRA can", folder,
         kAdapterConfigFile, list);
  }
  AdapterSpec spec;
  spec.from_file = true;
  spec.targets.clear();
  spec.rank = static_cast<std::int64_t>(number_at(config, "r", 8, folder));
  spec.alpha = number_at(config, "lora_alpha", 8, folder);
  spec.dropout = static_cast<float>(number_at(config, "lora_dropout", 0, folder));
  spec.rslora = is_set(config, "use_rslora");
  spec.tied_copies = is_set(config, "ensure_weight_tying");
  std::vector<std::pair<std::string, double>> alphas;
  if (const Json* patterns = config.find("alpha_pattern"); patterns != nullptr && patterns->is_object()) {
    for (const auto& [key, value] : patterns->as_object()) {
      if (!value.is_number())
        fail(ErrorKind::data, "{}/{}: alpha_pattern: \"{}\" is no number", folder, kAdapterConfigFile, key);
      alphas.emplace_back(plain_pattern(key, folder), value.as_double());
    }
  }
  const SafetensorsFile weights = open_weights(files, folder);
  for (const TensorInfo& tensor : weights.tensors()) {
    spec.base_layers = spec.base_layers || is_base_layer(tensor.name);
    auto module = module_of(tensor.name, ".lora_A.weight");
    if (!module) module = module_of(tensor.name, ".lora_embedding_A");
    if (module) {
      if (tensor.shape.size() != 2 || tensor.shape[0] < 1) {
        fail(ErrorKind::data, "{}: \"{}\" {} is no matrix of a LoRA pair", weights.path(), tensor.name,
             shape_text(tensor.shape));
      }
      if (tensor.shape[0] != spec.rank) spec.ranks[*module] = tensor.shape[0];
      const auto alpha = std::ranges::find_if(
          alphas, [&module](const auto& entry) { return names_module(entry.first, *module); });
      if (alpha != alphas.end()) spec.alphas[*module] = alpha->second;
      spec.targets.push_back(*module);
    } else if (!is_lora_name(tensor.name) && !is_base_layer(tensor.name)) {
      auto copied = module_of(tensor.name, ".weight");
      if (!copied) copied = module_of(tensor.name, ".bias");
      if (copied) spec.additional_targets.push_back(*copied);
    }
  }
  if (spec.targets.empty() && spec.additional_targets.empty())
    fail(ErrorKind::data, "{}: holds no tensor of an adapter", weights.path());
  return spec;
}

std::string read_peft_base(FileSystem& files, const std::string& folder) {
  const Json config = read_config(files, folder);
  const Json* base = config.find("base_model_name_or_path");
  return base != nullptr && base->is_string() ? base->as_string() : "";
}

std::int64_t read_peft_rows(FileSystem& files, const std::string& folder, const DecoderNames& names) {
  std::int64_t rows = 0;
  const SafetensorsFile weights = open_weights(files, folder);
  for (const TensorInfo& tensor : weights.tensors()) {
    if (tensor.shape.size() != 2) continue;
    for (const std::string& weight : {names.embedding, names.head}) {
      const std::string module = std::string(kPrefix) + weight.substr(0, weight.rfind('.'));
      if (tensor.name == module + ".weight" || tensor.name == module + ".lora_B.weight")
        rows = std::max(rows, tensor.shape[0]);
      if (tensor.name == module + ".lora_embedding_A") rows = std::max(rows, tensor.shape[1]);
    }
  }
  return rows;
}

void load_peft(FileSystem& files, const std::string& folder, Context& context, Decoder& decoder) {
  const WeightSet weights(files, join_path(folder, std::string(kAdapterWeightsFile)));
  ParameterList& parameters = decoder.parameters();
  std::vector<TensorTarget> targets;
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.role == ParameterRole::base || !parameter.trainable()) continue;
    targets.push_back(
        {file_name(parameter), parameter.file_shape(), parameter.values(), is_transposed(parameter)});
  }
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.role != ParameterRole::base || parameter.vector || parameter.quantized()) continue;
    const std::string name = base_layer_name(parameter.module());
    if (!weights.tensors().contains(name)) continue;
    targets.push_back({name, parameter.file_shape(), parameter.values(), is_transposed(parameter)});
    parameter.storage->changed(false);
  }
  std::set<std::string, std::less<>> twice;  // a shared copy is there under both names
  for (const FullCopy& copy : parameters.copies()) {
    if (parameters.shares_copy(copy)) twice.insert(shared_name(copy));
  }
  load_tensors(weights, targets, {context.kernel.threads, [&twice](std::string_view name) {
                                    return is_base_layer(name) || twice.contains(name);
                                  }});
  for (const auto& storage : parameters.storages()) {
    if (storage->gradient() != nullptr) storage->changed(false);
  }
}

std::vector<PeftTensor> peft_tensors(const ParameterList& parameters, DType dtype) {
  std::vector<PeftTensor> tensors;
  for (std::size_t i = 0; i < parameters.all().size(); ++i) {
    const Parameter& parameter = parameters.all()[i];
    if (parameter.role == ParameterRole::base || !parameter.trainable()) continue;
    tensors.push_back({{file_name(parameter), dtype, parameter.file_shape(), is_transposed(parameter)}, i});
  }
  for (const LoraPair& pair : parameters.pairs()) {
    const Parameter& base = parameters.all()[pair.base];
    if (!parameters.policy().adapter->base_layers || base.quantized()) continue;
    const ModuleKind kind = parameters.all()[pair.b].kind;
    if (kind != ModuleKind::embedding && kind != ModuleKind::head) continue;
    tensors.push_back(
        {{base_layer_name(pair.module), dtype, base.file_shape(), is_transposed(base)}, pair.base});
  }
  for (const FullCopy& copy : parameters.copies()) {
    if (!parameters.shares_copy(copy)) continue;
    tensors.push_back(
        {{shared_name(copy), dtype, parameters.all()[copy.copy].file_shape(), false}, copy.copy});
  }
  return tensors;
}

std::string peft_config(const ParameterList& parameters, const std::string& base) {
  LODE_ASSERT(parameters.policy().adapter.has_value());
  const AdapterSpec& spec = *parameters.policy().adapter;
  Json ranks = Json::object(), alphas = Json::object();
  bool transposed = false;
  for (const LoraPair& pair : parameters.pairs()) {
    if (pair.rank != spec.rank) add_pattern(ranks, pair.module, pair.rank);
    if (pair.alpha != spec.alpha) add_pattern(alphas, pair.module, pair.alpha);
    transposed = transposed || parameters.all()[pair.base].layout == FileLayout::transposed;
  }
  auto adapted = parameters.adapted_modules();
  // In the order of keys that PEFT writes.
  Json config = Json::object();
  config["alpha_pattern"] = std::move(alphas);
  config["auto_mapping"] = nullptr;
  config["base_model_name_or_path"] = base;
  config["bias"] = "none";
  if (std::ranges::any_of(parameters.copies(), [&](const FullCopy& c) { return parameters.shares_copy(c); }))
    config["ensure_weight_tying"] = true;
  config["fan_in_fan_out"] = transposed;
  config["inference_mode"] = true;
  config["init_lora_weights"] = true;
  config["layers_pattern"] = nullptr;
  config["layers_to_transform"] = nullptr;
  config["lora_alpha"] = spec.alpha;
  config["lora_bias"] = false;
  config["lora_dropout"] = static_cast<double>(spec.dropout);
  config["modules_to_save"] = adapted.copies.empty() ? Json() : names_of(std::move(adapted.copies));
  config["peft_type"] = "LORA";
  config["r"] = spec.rank;
  config["rank_pattern"] = std::move(ranks);
  config["revision"] = nullptr;
  config["target_modules"] = names_of(std::move(adapted.lora));
  config["task_type"] = "CAUSAL_LM";
  config["use_dora"] = false;
  config["use_rslora"] = spec.rslora;
  return config.dump(2) + "\n";
}

void save_peft(FileSystem& files, const std::string& folder, const ParameterList& parameters,
               const std::string& base) {
  const std::vector<PeftTensor> tensors = peft_tensors(parameters);
  std::vector<TensorSpec> specs;
  for (const PeftTensor& tensor : tensors) specs.push_back(tensor.spec);
  write_safetensors(
      files, join_path(folder, std::string(kAdapterWeightsFile)), specs,
      [&](std::size_t i) -> ConstView { return parameters.all()[tensors[i].parameter].values(); });
  write_file_atomically(files, join_path(folder, std::string(kAdapterConfigFile)),
                        peft_config(parameters, base));
}

void merged_rows(Context& context, const ParameterList& parameters, std::size_t index, bool as_head,
                 std::int64_t first, View out) {
  const Parameter& base = parameters.all()[index];
  // A tied embedding serves two modules: what belongs to which shows in the kind.
  const auto mine = [&](std::size_t at) {
    return base.kind != ModuleKind::embedding || (parameters.all()[at].kind == ModuleKind::head) == as_head;
  };
  for (const FullCopy& copy : parameters.copies()) {
    if (copy.base == index && mine(copy.copy))
      return parameters.all()[copy.copy].read_rows(context, first, out);
  }
  base.read_rows(context, first, out);
  for (const LoraPair& pair : parameters.pairs()) {
    if (pair.base == index && mine(pair.b)) add_pair(context, parameters, pair, first, out);
  }
}

bool unties_head(const Decoder& decoder) {
  if (!decoder.spec().tied_head) return false;
  const ParameterList& parameters = decoder.parameters();
  const auto shared = [&](const FullCopy& copy) { return parameters.shares_copy(copy); };
  if (std::ranges::any_of(parameters.copies(), shared)) return false;
  return std::ranges::any_of(parameters.all(),
                             [](const Parameter& p) {
                               return p.role != ParameterRole::base && p.kind == ModuleKind::head;
                             }) ||
         std::ranges::any_of(parameters.all(), [](const Parameter& p) {
           return p.role != ParameterRole::base && p.trainable() && p.kind == ModuleKind::embedding;
         });
}

}  // namespace lode
