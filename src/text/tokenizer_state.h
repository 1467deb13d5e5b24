// A Tokenizer's parts, built from a TokenizerSpec and checked.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe_model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/tokenizer_spec.h"

namespace lode::text {

struct Scratch {
  RegexScratch regex;
  BpeScratch bpe;
};

// Lends working memory, word cache included, to one caller at a time: to a thread what it had before, whose
// words are in its core's cache.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> take();
  void give(std::unique_ptr<Scratch> scratch);

 private:
  std::mutex mutex_;
  struct Free {
    std::thread::id last_user;
    std::unique_ptr<Scratch> scratch;
  };
  std::vector<Free> free_;
};

struct Token {
  std::string spelling;  // as in tokenizer.json
  std::string bytes;
  bool present = false, special = false;
};

struct TokenizerState {
  TokenizerState(TokenizerSpec spec, const std::string& what);

  TokenizerSpec spec;
  std::vector<Token> tokens;  // by id
  StringToId ids;             // by spelling; added tokens too
  std::vector<AddedToken> added;
  AddedTokenMatcher raw_tokens, normalized_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  BpeModel model;
  std::vector<std::int32_t> prefix, suffix;  // the post-processor's
  std::optional<std::int32_t> bos, eos, pad;
  int missing_bytes = 0;
  mutable ScratchPool scratch;

 private:
  void add_vocab(const std::string& what);
  void add_token(std::int32_t id, const std::string& spelling, const std::string& what);
  void add_model(const std::string& what);
  void add_bytes(const Json& model, const std::string& what);
  void add_characters(const Json& model, const std::string& what);
  void add_unknown(const Json& model, const std::string& what);
  void add_merges(const std::string& what);
  void add_added_tokens(const std::string& what);
  std::int32_t expected_id(const std::string& content) const;
  void build_matchers();
  void check_named(const std::string& what);
};

}  // namespace lode::text
