// Tokens back to text: tokenizer.json's "decoder".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace lode::text {

// One decoding: tokens in, text out. What has been returned never changes, so that it can be streamed.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void push(std::string token, std::vector<std::string>& out) = 0;
  virtual void finish(std::vector<std::string>&) {}
};

class DecodeRun {
 public:
  explicit DecodeRun(std::vector<std::unique_ptr<DecodeStep>> steps) : steps_(std::move(steps)) {}
  std::string push(std::string_view token);  // as spelled in tokenizer.json
  std::string finish();                      // what is left; starts anew

 private:
  std::string pass(std::vector<std::string> tokens, std::size_t from);
  std::vector<std::unique_ptr<DecodeStep>> steps_;
};

class TokenDecoder {
 public:
  // `config` may be null: tokens are joined with spaces. `what` names the file. Throws Error(data) for what
  // is not supported.
  TokenDecoder(const Json& config, const std::string& what);

  bool byte_level() const { return byte_level_; }  // ByteLevel and nothing else
  DecodeRun start() const;
  // What one token stands for in the middle of a text: bytes, valid UTF-8 or not.
  std::string token_bytes(const std::string& spelling) const;
  const std::string& description() const { return description_; }

 private:
  enum class Kind { byte_level, metaspace, replace, byte_fallback, fuse, strip, join };
  struct Step {
    Kind kind;
    std::string from, to;              // replace, metaspace; strip: from is the character
    std::int64_t left = 0, right = 0;  // strip
    bool drop_first = false;           // metaspace
    bool whole = false;                // after fuse: the text is one token
  };
  void add(const Json& config, const std::string& what);
  void add_strip(const Json& config, const std::string& what);
  void add_step(Step step);
  static std::unique_ptr<DecodeStep> make(const Step& step);

  std::vector<Step> steps_;
  bool byte_level_ = false, fused_ = false;
  std::string description_;
};

// Moves the complete characters of `bytes` into the result; at the end of the text the rest becomes U+FFFD.
std::string take_characters(std::string& bytes, bool at_end);

// The byte of "<0xXX>", or -1.
int byte_of_token(std::string_view spelling);

}  // namespace lode::text
