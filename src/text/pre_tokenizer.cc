#include "text/pre_tokenizer.h"

#include "core/fail.h"
#include "text/json_fields.h"
#include "text/unicode.h"

namespace lode::text {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {
// Numbers of later Unicode versions that the reference's Digits knows but its expressions do not.
constexpr std::string_view kNumeric = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";
}  // namespace

PreTokenizer::PreTokenizer(const Json& config, const std::string& what) {
  if (config.is_null()) {
    fail(ErrorKind::data, "{}: pre_tokenizer null is not supported: a byte-level BPE tokenizer has ByteLevel",
         what);
  }
  add(config, what);
  if (!byte_level_) {
    fail(ErrorKind::data, "{}: a pre_tokenizer without ByteLevel is not supported (byte-level BPE only)",
         what);
  }
}

void PreTokenizer::add(const Json& config, const std::string& what) {
  const std::string type = type_of(config, "pre_tokenizer", what);
  if (type == "Sequence") {
    for (const Json& part : array_field(config, "pretokenizers", "pre_tokenizer", what)) add(part, what);
    return;
  }
  if (byte_level_) fail(ErrorKind::data, "{}: pre_tokenizer {} after ByteLevel is not supported", what, type);
  if (type == "ByteLevel") {
    const bool prefix = bool_field(config, "add_prefix_space", true, "pre_tokenizer", what);
    const bool use_regex = bool_field(config, "use_regex", true, "pre_tokenizer", what);
    add_step(use_regex ? std::string(kGpt2Pattern) : "", Matched::keep, Unmatched::keep, prefix, what);
    byte_level_ = true;
  } else if (type == "Split") {
    add_split(config, what);
  } else if (type == "Digits") {
    const bool individual = bool_field(config, "individual_digits", false, "pre_tokenizer", what);
    add_step(std::string(kNumeric) + (individual ? "" : "+"), Matched::keep, Unmatched::keep, false, what);
  } else {
    fail(ErrorKind::data, "{}: pre_tokenizer {} is not supported (known: ByteLevel, Split, Digits, Sequence)",
         what, type);
  }
}

void PreTokenizer::add_split(const Json& config, const std::string& what) {
  const Json& pattern = field(config, "pattern", "pre_tokenizer Split", what);
  const Json* regex = pattern.find("Regex");
  const Json* literal = pattern.find("String");
  const Json* text = regex != nullptr ? regex : literal;
  if (text == nullptr || !text->is_string() || text->as_string().empty()) {
    fail(ErrorKind::data,
         "{}: pre_tokenizer Split: pattern must be {{\"Regex\": text}} or {{\"String\": text}}", what);
  }
  const std::string behavior = string_field(config, "behavior", "pre_tokenizer Split", what);
  const bool invert = bool_field(config, "invert", false, "pre_tokenizer Split", what);
  if (behavior != "Isolated" && behavior != "Removed") {
    fail(ErrorKind::data, "{}: pre_tokenizer Split: behavior {} is not supported (known: Isolated, Removed)",
         what, behavior);
  }
  const bool removed = behavior == "Removed";
  add_step(regex != nullptr ? text->as_string() : Regex::quote(text->as_string()),
           removed && !invert ? Matched::drop : Matched::keep,
           removed && invert ? Unmatched::drop : Unmatched::keep, false, what);
}

void PreTokenizer::add_step(std::string pattern, Matched matched, Unmatched unmatched, bool prefix,
                            const std::string& what) {
  Step step{{}, matched, unmatched, prefix};
  if (!pattern.empty()) step.regex.emplace_back(pattern, what + ": pre_tokenizer");
  steps_.push_back(std::move(step));
  description_ += format("{}{}{}:{}:{}\n", prefix, matched == Matched::keep, unmatched == Unmatched::keep,
                         pattern.size(), pattern);
}

void PreTokenizer::run(std::string_view piece, RegexScratch& scratch,
                       FunctionRef<void(std::string_view)> sink) const {
  if (piece.empty()) return;
  const std::string twin = with_stand_ins(piece);
  apply(0, {piece, twin.empty() ? piece : std::string_view(twin)}, scratch, sink);
}

void PreTokenizer::apply(std::size_t step, const Piece& piece, RegexScratch& scratch,
                         FunctionRef<void(std::string_view)> sink) const {
  if (step == steps_.size()) return sink(piece.text);
  if (!steps_[step].add_prefix_space || piece.text.front() == ' ') return cut(step, piece, scratch, sink);
  const std::string text = " " + std::string(piece.text);
  const std::string twin = " " + std::string(piece.twin);
  cut(step, {text, twin}, scratch, sink);
}

void PreTokenizer::cut(std::size_t index, const Piece& piece, RegexScratch& scratch,
                       FunctionRef<void(std::string_view)> sink) const {
  const Step& step = steps_[index];
  if (step.regex.empty()) return apply(index + 1, piece, scratch, sink);
  const std::size_t size = piece.text.size();
  std::size_t done = 0;
  RegexMatch match;
  while (done < size && step.regex[0].find(piece.twin, done, scratch, match)) {
    if (match.begin > done && step.unmatched == Unmatched::keep) {
      apply(index + 1, piece.part(done, match.begin), scratch, sink);
    }
    if (step.matched == Matched::keep) apply(index + 1, piece.part(match.begin, match.end), scratch, sink);
    done = match.end;
  }
  if (done < size && step.unmatched == Unmatched::keep)
    apply(index + 1, piece.part(done, size), scratch, sink);
}

}  // namespace lode::text
