#include "text/bpe_trainer.h"

#include <algorithm>
#include <chrono>

#include "core/fail.h"
#include "core/parallel.h"
#include "text/bpe_merger.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_spec.h"
#include "text/unicode.h"
#include "text/word_counter.h"

namespace lode {
namespace {

constexpr std::size_t kChunk = 256 << 10;  // bytes of one task
constexpr std::size_t kBatch = 16 << 20;   // bytes of documents held at a time

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// gpt2 has its expression inside ByteLevel; cl100k and Llama 3 share one.
struct NamedPattern {
  std::string_view name, pattern;
};
constexpr NamedPattern kPatterns[] = {
    {"gpt2", ""}, {"cl100k", kLlama3Pattern}, {"llama3", kLlama3Pattern}, {"qwen2", kQwen2Pattern}};

Json byte_level_json(bool prefix, bool use_regex) {
  return Json::object({{"type", "ByteLevel"},
                       {"add_prefix_space", prefix},
                       {"trim_offsets", true},
                       {"use_regex", use_regex}});
}

Json pre_tokenizer_json(const std::string& name) {
  for (const auto& [known, pattern] : kPatterns) {
    if (known != name) continue;
    if (pattern.empty()) return byte_level_json(false, true);
    Json split = Json::object({{"type", "Split"},
                               {"pattern", Json::object({{"Regex", pattern}})},
                               {"behavior", "Isolated"},
                               {"invert", false}});
    Json parts(Json::Array{std::move(split), byte_level_json(false, false)});
    return Json::object({{"type", "Sequence"}, {"pretokenizers", std::move(parts)}});
  }
  fail(ErrorKind::usage, "unknown pre-tokenizer \"{}\": known are gpt2, cl100k, llama3, qwen2", name);
}

Json document_json(const BpeTrainOptions& options) {
  Json added = Json::array();
  for (std::size_t i = 0; i < options.special_tokens.size(); i++) {
    added.push_back(text::special_token_json(static_cast<std::int32_t>(i), options.special_tokens[i]));
  }
  Json model = Json::object({{"type", "BPE"},
                             {"dropout", nullptr},
                             {"unk_token", nullptr},
                             {"continuing_subword_prefix", nullptr},
                             {"end_of_word_suffix", nullptr},
                             {"fuse_unk", false},
                             {"byte_fallback", false},
                             {"ignore_merges", false},
                             {"vocab", Json::object()},
                             {"merges", Json::array()}});
  return Json::object({{"version", "1.0"},
                       {"truncation", nullptr},
                       {"padding", nullptr},
                       {"added_tokens", std::move(added)},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", pre_tokenizer_json(options.pre_tokenizer)},
                       {"post_processor", nullptr},
                       {"decoder", byte_level_json(true, true)},
                       {"model", std::move(model)}});
}

// Special tokens, then the byte alphabet by code point.
std::vector<std::string> initial_tokens(const BpeTrainOptions& options) {
  std::vector<std::string> tokens;
  const auto add = [&](const std::string& token) {
    const bool known = std::ranges::find(tokens, token) != tokens.end();
    if (!known) tokens.push_back(token);
    return !known;
  };
  for (const std::string& token : options.special_tokens) {
    if (token.empty()) fail(ErrorKind::usage, "a special token is empty");
    if (text::valid_utf8_prefix(token) != token.size())
      fail(ErrorKind::usage, "a special token is not UTF-8");
    if (!add(token)) fail(ErrorKind::usage, "the special token \"{}\" is given twice", token);
  }
  std::vector<char32_t> alphabet;
  for (int b = 0; b < 256; b++) alphabet.push_back(text::byte_to_character(static_cast<std::uint8_t>(b)));
  std::ranges::sort(alphabet);
  for (const char32_t character : alphabet) {
    std::string token;
    text::append_code_point(character, token);
    add(token);
  }
  return tokens;
}

void check(const BpeTrainOptions& options, std::size_t num_initial) {
  if (options.vocab_size < static_cast<std::int64_t>(num_initial) || options.vocab_size > text::kMaxTokenId) {
    fail(ErrorKind::usage, "vocab_size {} is out of range: {} (the bytes and the special tokens) to {}",
         options.vocab_size, num_initial, text::kMaxTokenId);
  }
  if (options.min_frequency < 0)
    fail(ErrorKind::usage, "min_frequency {} is negative", options.min_frequency);
  if (options.threads < 1) fail(ErrorKind::usage, "threads {} is below 1", options.threads);
  for (const std::string* token : {&options.named.bos, &options.named.eos, &options.named.pad}) {
    if (!token->empty() &&
        std::ranges::find(options.special_tokens, *token) == options.special_tokens.end()) {
      fail(ErrorKind::usage, "\"{}\" is named as bos, eos or pad but is not one of the special tokens",
           *token);
    }
  }
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Cuts at line ends after an ASCII letter: there every one of our expressions ends a pre-token and starts
// afresh.
void cut(std::string_view document, std::vector<std::string_view>& chunks) {
  while (document.size() > kChunk) {
    std::size_t at = kChunk;
    while (at < document.size() && !(document[at] == '\n' && is_letter(document[at - 1]))) at++;
    chunks.push_back(document.substr(0, at));
    document.remove_prefix(at);
  }
  if (!document.empty()) chunks.push_back(document);
}

class Counter {
 public:
  Counter(const Json& pre_tokenizer, int threads)
      : pre_tokenizer_(pre_tokenizer, "training"), parts_(static_cast<std::size_t>(threads)) {}

  void count(const std::vector<std::string>& documents) {
    std::vector<std::string_view> chunks;
    for (const std::string& document : documents) cut(document, chunks);
    parallel_tasks(static_cast<int>(parts_.size()), static_cast<std::int64_t>(chunks.size()),
                   [&](std::int64_t task, int thread) {
                     Part& part = parts_[static_cast<std::size_t>(thread)];
                     const std::string_view chunk = chunks[static_cast<std::size_t>(task)];
                     const bool valid = text::valid_utf8_prefix(chunk) == chunk.size();
                     const std::string repaired = valid ? std::string() : text::lossy_utf8(chunk);
                     pre_tokenizer_.run(valid ? chunk : std::string_view(repaired), true, part.regex,
                                        [&](std::string_view word) { part.words.add(word); });
                   });
  }

  text::WordCounter take() {
    for (std::size_t i = 1; i < parts_.size(); i++) parts_[0].words.add_all(parts_[i].words);
    return std::move(parts_[0].words);
  }

 private:
  struct Part {
    text::WordCounter words;
    text::RegexScratch regex;
  };
  text::PreTokenizer pre_tokenizer_;
  std::vector<Part> parts_;
};

text::WordCounter count_words(const DocumentSource& next, const Json& pre_tokenizer, int threads,
                              BpeTrainStats& stats) {
  Counter counter(pre_tokenizer, threads);
  std::vector<std::string> batch;
  std::size_t held = 0;
  std::string document;
  while (next(document)) {
    stats.documents++;
    stats.bytes += static_cast<std::int64_t>(document.size());
    held += document.size();
    batch.push_back(std::move(document));
    document.clear();
    if (held < kBatch) continue;
    counter.count(batch);
    batch.clear();
    held = 0;
  }
  counter.count(batch);
  return counter.take();
}

}  // namespace

Tokenizer train_bpe(const DocumentSource& next, const BpeTrainOptions& options, BpeTrainStats* stats_out) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  text::TokenizerSpec spec;
  spec.document = document_json(options);
  std::vector<std::string> tokens = initial_tokens(options);
  check(options, tokens.size());

  BpeTrainStats stats;
  const auto start = Clock::now();
  const text::WordCounter words =
      count_words(next, spec.document.at("pre_tokenizer"), options.threads, stats);
  const auto counted = Clock::now();
  text::BpeMerger merger(std::move(tokens), words);
  merger.run(static_cast<std::size_t>(options.vocab_size), options.min_frequency);
  spec.merges = merger.merges();
  stats.words = words.total();
  stats.distinct_words = static_cast<std::int64_t>(words.size());
  stats.merges = static_cast<std::int64_t>(spec.merges.size());
  stats.count_seconds = seconds(counted - start);
  stats.merge_seconds = seconds(Clock::now() - counted);
  if (stats_out != nullptr) *stats_out = stats;

  for (std::size_t i = 0; i < merger.tokens().size(); i++) {
    spec.vocab.emplace_back(merger.tokens()[i], static_cast<std::int32_t>(i));
  }
  spec.named = options.named;
  return Tokenizer::from_spec(std::move(spec), "the trained tokenizer");
}

std::vector<std::string_view> pre_tokenizer_names() {
  std::vector<std::string_view> names;
  for (const auto& known : kPatterns) names.push_back(known.name);
  return names;
}

}  // namespace lode
