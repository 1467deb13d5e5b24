// Text generation with a KV cache, one sequence.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infer/sampling.h"
#include "nn/decoder.h"
#include "text/tokenizer.h"

namespace lode {

struct GenerateOptions {
  SamplingOptions sampling;
  std::int64_t max_new_tokens = 64;
  std::vector<std::string> stop;       // generation ends before the first of these appears in the new text
  std::vector<std::int32_t> stop_ids;  // further tokens that end it, beside the tokenizer's eos token
};

struct Generated {
  std::vector<std::int32_t> tokens;  // new ones
  std::string text;                  // of the new tokens, without stop string and special tokens
  std::string stopped_by;            // "eos", "stop", "length", "context"
  std::int64_t prompt_tokens = 0;
  double time_prompt = 0, time_tokens = 0;  // seconds
};

// on_text is handed complete characters as they come; text that could begin a stop string is held back until
// it is not. An empty prompt begins with the tokenizer's bos token, or its eos token. Throws Error(usage)
// when the prompt is too long.
Generated generate(Context& context, Decoder& decoder, const Tokenizer& tokenizer, std::string_view prompt,
                   const GenerateOptions& options, const std::function<void(std::string_view)>& on_text = {});

// The same after given tokens, at least one of them.
Generated generate_after(Context& context, Decoder& decoder, const Tokenizer& tokenizer,
                         std::vector<std::int32_t> prompt, const GenerateOptions& options,
                         const std::function<void(std::string_view)>& on_text = {});

// Logits after further tokens of a sequence, at least one of them.
Tensor next_logits(Context& context, Decoder& decoder, KvCache& cache, std::span<const std::int32_t> tokens);

// To be called in a rehearsal: takes the memory of the longest text that generate_after can make. Throws as
// it does.
void rehearse_generation(Context& context, Decoder& decoder, std::int64_t prompt_tokens,
                         std::int64_t max_new_tokens);

}  // namespace lode
