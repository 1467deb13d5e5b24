#include "text/token_decoder.h"

#include <utility>

#include "core/fail.h"
#include "text/json_fields.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace lode::text {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

class ByteLevelStep : public DecodeStep {
 public:
  void push(std::string token, std::vector<std::string>& out) override {
    bytes_ += alphabet_to_bytes(token);
    if (std::string text = take_characters(bytes_, false); !text.empty()) out.push_back(std::move(text));
  }
  void finish(std::vector<std::string>& out) override { out.push_back(take_characters(bytes_, true)); }

 private:
  std::string bytes_;
};

class ReplaceStep : public DecodeStep {
 public:
  // `drop_first`: the first token loses its matches. `whole`: matches may span tokens.
  ReplaceStep(std::string from, std::string to, bool drop_first, bool whole)
      : from_(std::move(from)), to_(std::move(to)), drop_first_(drop_first), whole_(whole) {}
  void push(std::string token, std::vector<std::string>& out) override {
    if (whole_) {
      text_ += token;
      return;
    }
    out.push_back(replace_all(token, from_, drop_first_ && first_ ? std::string_view() : to_));
    first_ = false;
  }
  void finish(std::vector<std::string>& out) override {
    first_ = true;
    if (whole_) out.push_back(replace_all(std::exchange(text_, {}), from_, to_));
  }

 private:
  std::string from_, to_, text_;
  bool drop_first_, whole_, first_ = true;
};

// A run of byte tokens is text when all of it is UTF-8, else one U+FFFD for each byte.
class ByteFallbackStep : public DecodeStep {
 public:
  void push(std::string token, std::vector<std::string>& out) override {
    if (const int byte = byte_of_token(token); byte >= 0) {
      bytes_.push_back(static_cast<char>(byte));
      return;
    }
    finish(out);
    out.push_back(std::move(token));
  }
  void finish(std::vector<std::string>& out) override {
    if (bytes_.empty()) return;
    const std::string bytes = std::exchange(bytes_, {});
    if (valid_utf8_prefix(bytes) == bytes.size()) {
      out.push_back(bytes);
    } else {
      for (std::size_t i = 0; i < bytes.size(); i++) out.emplace_back(kReplacementCharacter);
    }
  }

 private:
  std::string bytes_;
};

// Removes up to `left` and `right` characters equal to `content` from each token, or from the whole text.
class StripStep : public DecodeStep {
 public:
  StripStep(std::string content, std::int64_t left, std::int64_t right, bool whole)
      : content_(std::move(content)), left_(left), right_(right), whole_(whole), left_now_(left) {}
  void push(std::string token, std::vector<std::string>& out) override {
    if (!whole_) {
      left_now_ = left_;
      strip_left(token);
      strip_right(token);
      out.push_back(std::move(token));
      return;
    }
    held_ += token;
    if (left_now_ > 0) strip_left(held_);
    if (left_now_ > 0 && held_.empty()) return;
    // What could still be stripped at the end waits: at most `right` characters of content.
    std::size_t end = held_.size();
    for (std::int64_t i = 0; i < right_ && std::string_view(held_).substr(0, end).ends_with(content_); i++) {
      end -= content_.size();
    }
    left_now_ = end > 0 ? 0 : left_now_;
    out.push_back(held_.substr(0, end));
    held_.erase(0, end);
  }
  void finish(std::vector<std::string>& out) override {
    if (whole_) {
      strip_right(held_);
      out.push_back(std::exchange(held_, {}));
    }
    left_now_ = left_;
  }

 private:
  void strip_left(std::string& text) {
    std::size_t at = 0;
    while (left_now_ > 0 && std::string_view(text).substr(at).starts_with(content_)) {
      at += content_.size();
      left_now_--;
    }
    if (at < text.size()) left_now_ = 0;
    text.erase(0, at);
  }
  void strip_right(std::string& text) const {
    for (std::int64_t i = 0; i < right_ && text.ends_with(content_); i++) {
      text.erase(text.size() - content_.size());
    }
  }
  std::string content_, held_;
  std::int64_t left_, right_;
  bool whole_;
  std::int64_t left_now_;
};

class JoinStep : public DecodeStep {
 public:
  void push(std::string token, std::vector<std::string>& out) override {
    out.push_back(std::exchange(started_, true) ? " " + token : std::move(token));
  }
  void finish(std::vector<std::string>&) override { started_ = false; }

 private:
  bool started_ = false;
};

}  // namespace

std::string take_characters(std::string& bytes, bool at_end) {
  std::string out;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const std::size_t good = valid_utf8_prefix(rest);
    out.append(rest.substr(0, good));
    rest.remove_prefix(good);
    if (rest.empty()) break;
    bool incomplete;
    const std::size_t bad = invalid_utf8_length(rest, incomplete);
    if (incomplete && !at_end) break;
    out.append(kReplacementCharacter);
    rest.remove_prefix(bad);
  }
  bytes = std::string(rest);
  return out;
}

int byte_of_token(std::string_view s) {
  if (s.size() != 6 || !s.starts_with("<0x") || s[5] != '>') return -1;
  int value = 0;
  for (const char c : s.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    const char lower = static_cast<char>(c | 0x20);
    if (!digit && (lower < 'a' || lower > 'f')) return -1;
    value = value * 16 + (digit ? c - '0' : lower - 'a' + 10);
  }
  return value;
}

std::string DecodeRun::pass(std::vector<std::string> tokens, std::size_t from) {
  for (std::size_t i = from; i < steps_.size(); i++) {
    std::vector<std::string> next;
    for (std::string& token : tokens) steps_[i]->push(std::move(token), next);
    tokens = std::move(next);
  }
  std::string out;
  for (const std::string& token : tokens) out += token;
  return out;
}

std::string DecodeRun::push(std::string_view token) {
  std::vector<std::string> tokens;
  tokens.emplace_back(token);
  return pass(std::move(tokens), 0);
}

std::string DecodeRun::finish() {
  std::string out;
  for (std::size_t i = 0; i < steps_.size(); i++) {
    std::vector<std::string> tokens;
    steps_[i]->finish(tokens);
    out += pass(std::move(tokens), i + 1);
  }
  return out;
}

TokenDecoder::TokenDecoder(const Json& config, const std::string& what) {
  if (config.is_null()) {
    add_step({.kind = Kind::join});
  } else {
    add(config, what);
    byte_level_ = steps_.size() == 1 && steps_[0].kind == Kind::byte_level;
  }
}

void TokenDecoder::add(const Json& config, const std::string& what) {
  const std::string type = type_of(config, "decoder", what);
  if (type == "Sequence") {
    for (const Json& part : array_field(config, "decoders", "decoder", what)) add(part, what);
  } else if (type == "ByteLevel") {
    add_step({.kind = Kind::byte_level});
    fused_ = true;
  } else if (type == "ByteFallback") {
    // After Fuse there is one token, which may spell a byte only when it is the whole text.
    if (fused_) fail(ErrorKind::data, "{}: decoder ByteFallback after Fuse is not supported", what);
    add_step({.kind = Kind::byte_fallback});
  } else if (type == "Fuse") {
    fused_ = true;
    add_step({.kind = Kind::fuse});
  } else if (type == "Metaspace") {
    if (fused_) fail(ErrorKind::data, "{}: decoder Metaspace after Fuse is not supported", what);
    const std::string from = string_field(config, "replacement", "decoder Metaspace", what);
    if (from.empty()) fail(ErrorKind::data, "{}: decoder Metaspace: replacement is empty", what);
    const std::string scheme = prefix_scheme_field(config, "decoder Metaspace", what);
    add_step({.kind = Kind::metaspace, .from = from, .to = " ", .drop_first = scheme != "never"});
  } else if (type == "Replace") {
    const TextPattern pattern = pattern_field(config, "decoder Replace", what);
    if (pattern.is_regex) fail(ErrorKind::data, "{}: decoder Replace with a Regex is not supported", what);
    add_step({.kind = Kind::replace,
              .from = pattern.text,
              .to = string_field(config, "content", "decoder Replace", what),
              .whole = fused_});
  } else if (type == "Strip") {
    add_strip(config, what);
  } else {
    fail(ErrorKind::data,
         "{}: decoder {} is not supported (known: ByteLevel, ByteFallback, Metaspace, Replace, Fuse, Strip, "
         "Sequence)",
         what, type);
  }
}

void TokenDecoder::add_strip(const Json& config, const std::string& what) {
  Step step{.kind = Kind::strip, .whole = fused_};
  step.from = string_field(config, "content", "decoder Strip", what);
  step.left = int_field(config, "start", "decoder Strip", what);
  step.right = int_field(config, "stop", "decoder Strip", what);
  if (step.from.empty()) fail(ErrorKind::data, "{}: decoder Strip: content is empty", what);
  add_step(std::move(step));
}

void TokenDecoder::add_step(Step step) {
  description_ +=
      format("{}:{}:{}:{}:{}\n", static_cast<int>(step.kind), step.from, step.to, step.left, step.right);
  steps_.push_back(std::move(step));
}

std::unique_ptr<DecodeStep> TokenDecoder::make(const Step& step) {
  switch (step.kind) {
    case Kind::byte_level:
      return std::make_unique<ByteLevelStep>();
    case Kind::metaspace:
    case Kind::replace:
      return std::make_unique<ReplaceStep>(step.from, step.to, step.drop_first, step.whole);
    case Kind::byte_fallback:
      return std::make_unique<ByteFallbackStep>();
    case Kind::strip:
      return std::make_unique<StripStep>(step.from, step.left, step.right, step.whole);
    case Kind::join:
      return std::make_unique<JoinStep>();
    case Kind::fuse:
      break;
  }
  return nullptr;
}

DecodeRun TokenDecoder::start() const {
  std::vector<std::unique_ptr<DecodeStep>> steps;
  for (const Step& step : steps_) {
    if (auto made = make(step)) steps.push_back(std::move(made));
  }
  return DecodeRun(std::move(steps));
}

std::string TokenDecoder::token_bytes(const std::string& spelling) const {
  std::string out = spelling;
  for (const Step& step : steps_) {
    if (step.kind == Kind::byte_level) {
      out = alphabet_to_bytes(out);
    } else if (step.kind == Kind::metaspace || step.kind == Kind::replace) {
      out = replace_all(out, step.from, step.to);
    } else if (const int byte = byte_of_token(out); step.kind == Kind::byte_fallback && byte >= 0) {
      return std::string(1, static_cast<char>(byte));
    }
  }
  return out;
}

}  // namespace lode::text
