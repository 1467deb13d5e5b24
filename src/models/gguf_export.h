// Models and LoRA adapters as GGUF files that llama.cpp runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/gguf.h"
#include "models/family.h"

namespace lode {

// Rows [first, first + out.rows) of a base parameter as they are to be written, into out (f32): those of the
// parameter itself, or of a merged one. as_head: of a tied embedding, what the head reads.
using RowReader = std::function<void(const Parameter& parameter, bool as_head, std::int64_t first, View out)>;

// What a model's file will hold, without the tokenizer.
struct GgufModel {
  GgufFields fields;                  // general.* and the architecture's
  std::vector<GgufTensorSpec> specs;  // in the order of `parameters`, then what belongs to none
  std::vector<const Parameter*> parameters;
  bool untied_head = false;  // the last of them is the embedding again, as a head that an adapter changed
  std::vector<std::string> substitutions;  // "blk.0.ffn_down.weight: F16, its rows of 100 fit no Q4_K block"
};

// Plans a file whose matrices are in `format` (F32, F16, BF16, Q8_0, Q4_0, Q4_K). Vectors and learned
// positions are F32; embedding and head of 4-bit files Q8_0; where a width does not allow a format, the next
// of Q8_0 and F16 is taken and listed. Throws Error(data) naming what GGUF cannot say about the config. The
// decoder must outlive the plan.
GgufModel plan_gguf(const ModelConfig& config, const Decoder& decoder, QuantFormat format,
                    const std::string& name);

// Streams the file; `tokenizer` holds the keys tokenizer.*. Returns its size. Nothing is left on failure.
std::uint64_t write_gguf(Context& context, FileSystem& files, const std::string& path,
                         const ModelConfig& config, const GgufModel& model, const GgufFields& tokenizer,
                         const RowReader& rows);

// The decoder's low-rank pairs as an adapter file for llama.cpp, in f32; base_name names the model. Throws
// Error(data) for what such a file cannot hold: full copies, and pairs on embeddings. Returns its size.
std::uint64_t write_gguf_adapter(Context& context, FileSystem& files, const std::string& path,
                                 const ModelConfig& config, const Decoder& decoder,
                                 const std::string& base_name);

}  // namespace lode
