#include "infer/generate.h"

#include <algorithm>
#include <chrono>

#include "core/fail.h"
#include "core/rehearsal.h"

namespace lode {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Finds stop strings in text that arrives in parts.
class StopFilter {
 public:
  explicit StopFilter(const std::vector<std::string>& stop) : stop_(stop) {}

  // Appends; returns what is safe to show, and sets stopped() when a stop string is complete.
  std::string push(std::string_view part) {
    held_ += part;
    std::size_t first = std::string::npos;
    for (const std::string& stop : stop_) {
      if (!stop.empty()) first = std::min(first, held_.find(stop));
    }
    if (first != std::string::npos) {
      stopped_ = true;
      std::string shown = held_.substr(0, first);
      held_.clear();
      return shown;
    }
    std::size_t keep = 0;  // longest end of the text that begins a stop string
    for (const std::string& stop : stop_) {
      for (std::size_t n = std::min(stop.size(), held_.size() + 1) - (stop.empty() ? 0 : 1); n > keep; --n) {
        if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
      }
    }
    std::string shown = held_.substr(0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    return shown;
  }
  std::string rest() { return std::exchange(held_, {}); }
  bool stopped() const { return stopped_; }

 private:
  const std::vector<std::string>& stop_;
  std::string held_;
  bool stopped_ = false;
};

KvCache make_cache(Context& context, const DecoderSpec& spec, std::int64_t prompt_tokens,
                   std::int64_t max_new_tokens) {
  if (prompt_tokens >= spec.max_positions) {
    fail(ErrorKind::usage, "the prompt has {} tokens; the model's context is {}: shorten it", prompt_tokens,
         spec.max_positions);
  }
  return KvCache(context, spec.layers, spec.kv_heads * spec.head_dim,
                 std::min(spec.max_positions, prompt_tokens + max_new_tokens));
}

}  // namespace

Tensor next_logits(Context& context, Decoder& decoder, KvCache& cache, std::span<const std::int32_t> tokens) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  const std::int32_t first[] = {static_cast<std::int32_t>(cache.length())};
  const std::int64_t sample[] = {0};
  const std::int32_t length[] = {count};
  const Batch batch({tokens.begin(), tokens.end()}, std::vector<std::int32_t>(tokens.size(), kIgnoreLabel),
                    std::vector<float>(tokens.size(), 0.0f), Segments(length, sample, count, first));
  return decoder.last_logits(context, decoder.forward(context, batch, &cache));
}

void rehearse_generation(Context& context, Decoder& decoder, std::int64_t prompt_tokens,
                         std::int64_t max_new_tokens) {
  LODE_ASSERT(Rehearsal::active());
  KvCache cache = make_cache(context, decoder.spec(), prompt_tokens, max_new_tokens);
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(prompt_tokens), 0);
  // The logits of the tokens before are there until those of the next ones are.
  Tensor logits = next_logits(context, decoder, cache, prompt);
  if (cache.length() == cache.capacity()) return;
  cache.advance(cache.capacity() - cache.length() - 1);
  logits = next_logits(context, decoder, cache, std::span(prompt).first(1));
}

Generated generate(Context& context, Decoder& decoder, const Tokenizer& tokenizer, std::string_view prompt,
                   const GenerateOptions& options, const std::function<void(std::string_view)>& on_text) {
  std::vector<std::int32_t> seen = tokenizer.encode(prompt, {.add_special_tokens = true});
  if (seen.empty()) {
    const auto begin = tokenizer.bos_id() ? tokenizer.bos_id() : tokenizer.eos_id();
    if (!begin)
      fail(ErrorKind::usage, "the prompt is empty and the tokenizer names no bos or eos token to begin with");
    seen.push_back(*begin);
  }
  return generate_after(context, decoder, tokenizer, std::move(seen), options, on_text);
}

Generated generate_after(Context& context, Decoder& decoder, const Tokenizer& tokenizer,
                         std::vector<std::int32_t> seen, const GenerateOptions& options,
                         const std::function<void(std::string_view)>& on_text) {
  if (options.max_new_tokens < 1) {
    fail(ErrorKind::usage, "max_new_tokens is {}; expected 1 or more", options.max_new_tokens);
  }
  LODE_ASSERT(!seen.empty());
  const DecoderSpec& spec = decoder.spec();
  const auto prompt_tokens = static_cast<std::int64_t>(seen.size());
  KvCache cache = make_cache(context, spec, prompt_tokens, options.max_new_tokens);
  Sampler sampler(options.sampling);
  StreamDecoder decode(tokenizer, true);
  StopFilter filter(options.stop);
  Generated out;
  out.prompt_tokens = prompt_tokens;
  const auto show = [&](const std::string& text) {
    out.text += text;
    if (on_text && !text.empty()) on_text(text);
  };

  auto begin = std::chrono::steady_clock::now();
  Tensor logits = next_logits(context, decoder, cache, seen);
  out.time_prompt = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  for (;;) {
    const std::int32_t token =
        sampler.next({logits.view().row<float>(0), static_cast<std::size_t>(spec.vocab_size)}, seen);
    if (token == tokenizer.eos_id() || std::ranges::find(options.stop_ids, token) != options.stop_ids.end()) {
      out.stopped_by = "eos";
      break;
    }
    seen.push_back(token);
    out.tokens.push_back(token);
    show(filter.push(decode.push(token)));
    if (filter.stopped()) {
      out.stopped_by = "stop";
      break;
    }
    if (static_cast<std::int64_t>(out.tokens.size()) == options.max_new_tokens) out.stopped_by = "length";
    if (out.stopped_by.empty() && cache.length() == cache.capacity()) out.stopped_by = "context";
    if (!out.stopped_by.empty()) break;
    logits = next_logits(context, decoder, cache, std::span(&token, 1));
  }
  if (!filter.stopped()) show(filter.push(decode.finish()));
  if (!filter.stopped()) show(filter.rest());
  out.time_tokens = seconds_since(begin);
  return out;
}

}  // namespace lode
