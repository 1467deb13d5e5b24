// Which weights of a model are trained and how the others are kept: all, the last layers, or low-rank
// adapters beside a frozen base.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/context.h"
#include "kernels/quantized.h"

namespace lode {

// LoRA (Hu et al. 2021, arXiv 2106.09685): y = x W^T + scale * dropout(x) A^T B^T, A [rank, in], B [out,
// rank]; scale alpha / rank, or alpha / sqrt(rank) (rsLoRA, arXiv 2312.03732).
struct AdapterSpec {
  std::int64_t rank = 8;
  double alpha = 16;
  bool rslora = false;
  float dropout = 0;
  // Modules by name: equal to it, or ending in "." + it. "all": every linear module but the head.
  std::vector<std::string> targets{"all"};
  // Trained as full copies (PEFT's modules_to_save), matched in the same way.
  std::vector<std::string> additional_targets;
  // The targets come from a file: that the model lacks one is found when its values are loaded.
  bool from_file = false;
  // The vocabulary has new tokens: embedding and head are full copies too.
  bool whole_tables = false;
  // A tied embedding and head have one copy (PEFT's ensure_weight_tying).
  bool tied_copies = false;
  // The file of the adapter has the own weights of an adapted embedding or head, too, as PEFT writes them.
  bool base_layers = false;
  // Other ranks and alphas for modules matched in the same way.
  std::map<std::string, std::int64_t> ranks;
  std::map<std::string, double> alphas;
};

// LLaMA-Factory's freeze: training of whole layers.
struct FreezeSpec {
  std::int64_t trainable_layers = 2;        // > 0: the last ones; < 0: the first ones
  std::vector<std::string> modules{"all"};  // of those layers: "mlp", "self_attn", ...; "all"
  std::vector<std::string> extra_modules;   // outside the layers: "embed_tokens", "norm", "lm_head"
  std::int64_t num_layers = 0;              // of the model; set by the decoder
};

enum class ModuleKind { linear, embedding, positions, head, norm };

struct WeightPolicy {
  bool train_base = true;              // without freeze and adapter
  std::optional<FreezeSpec> freeze;    // narrows it
  std::optional<AdapterSpec> adapter;  // the base is frozen
  // How matrices of frozen weights are kept: f32, or bf16 when products read bf16 anyway. Vectors stay f32.
  DType frozen_dtype = DType::f32;
  // Of trained matrices: f32, or bf16 without masters in f32. Vectors and low-rank pairs stay f32.
  DType trained_dtype = DType::f32;

  // The format in which a frozen matrix is kept, when not as frozen_dtype; by tensor name. Unset: none.
  std::function<std::optional<QuantFormat>(const std::string& name, ModuleKind kind)> format;

  // Products with frozen matrices are made in int8 arithmetic. Beside an adapter such a matrix is kept as
  // int8 rows where it would be floats; otherwise the int8 form is kept too.
  bool int8_products = false;

  WeightPolicy(bool train) : train_base(train) {}  // implicit: everything trained, or nothing
  bool all_trainable() const { return train_base && !freeze && !adapter; }
};

// bitsandbytes' practice: linear modules in this format; embeddings, norms and the head stay floats.
void quantize_linears(WeightPolicy& policy, QuantFormat format);

// Whether a module is what a list of targets names: equal to an entry or ending in "." + entry.
bool names_module(const std::string& entry, std::string_view module);

// One line a kind of module ("q_proj"): what was adapted, what not, and why.
struct CoverageRow {
  std::string module;          // the last part of the modules' names
  std::int64_t modules = 0;    // how many of that name
  std::int64_t adapted = 0;    // of them
  std::string how;             // "lora, rank 8", "full copy", "-"
  std::string why;             // "named in lora_target", "a norm is no linear module", ...
  std::int64_t trainable = 0;  // parameters
};

// While it lives the model is its base: adapters and full copies are off, and nothing is recorded. This is
// the reference model.
class WithoutAdapters {
 public:
  explicit WithoutAdapters(Context& context);
  ~WithoutAdapters();
  WithoutAdapters(const WithoutAdapters&) = delete;
  WithoutAdapters& operator=(const WithoutAdapters&) = delete;

 private:
  Context& context_;
  bool adapters_;
  Tape* tape_;
};

}  // namespace lode
