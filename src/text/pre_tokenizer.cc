#include "text/pre_tokenizer.h"

#include <algorithm>

#include "core/fail.h"
#include "text/json_fields.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace lode::text {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// Numbers of later Unicode versions that the reference's Digits knows but its expressions do not.
constexpr std::string_view kNumeric = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";
constexpr std::string_view kPunctuation = R"([!-\/:-@\[-`\{-~\p{P}])";
// The reference's Whitespace has \w of another library than its expressions.
constexpr std::string_view kWordsAndSigns =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\s]+)";

}  // namespace

PreTokenizer::PreTokenizer(const Json& config, const std::string& what) {
  if (!config.is_null()) add(config, what);
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
    add_step({.prefix = prefix ? Prefix::always : Prefix::none}, use_regex ? std::string(kGpt2Pattern) : "",
             what);
    byte_level_ = true;
  } else if (type == "Split") {
    add_split(config, what);
  } else if (type == "Metaspace") {
    add_metaspace(config, what);
  } else if (type == "Digits") {
    const bool individual = bool_field(config, "individual_digits", false, "pre_tokenizer", what);
    add_step({}, std::string(kNumeric) + (individual ? "" : "+"), what);
  } else if (type == "Punctuation") {
    const std::string behavior = optional_string_field(config, "behavior", "pre_tokenizer Punctuation", what);
    add_step({.behavior = behavior_of(behavior.empty() ? "Isolated" : behavior, what)},
             std::string(kPunctuation), what);
  } else if (type == "Whitespace") {
    add_step({.behavior = Behavior::removed, .invert = true}, std::string(kWordsAndSigns), what);
  } else if (type == "WhitespaceSplit") {
    add_step({.behavior = Behavior::removed}, "\\s", what);
  } else if (type == "BertPreTokenizer") {
    add_step({.behavior = Behavior::removed}, "\\s", what);
    add_step({}, std::string(kPunctuation), what);
  } else {
    fail(ErrorKind::data,
         "{}: pre_tokenizer {} is not supported (known: ByteLevel, Split, Metaspace, Digits, Punctuation, "
         "Whitespace, WhitespaceSplit, BertPreTokenizer, Sequence)",
         what, type);
  }
}

PreTokenizer::Behavior PreTokenizer::behavior_of(std::string_view name, const std::string& what) {
  const std::pair<std::string_view, Behavior> known[] = {
      {"Isolated", Behavior::isolated},
      {"Removed", Behavior::removed},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
      {"Contiguous", Behavior::contiguous}};
  for (const auto& [known_name, behavior] : known) {
    if (name == known_name) return behavior;
  }
  fail(ErrorKind::data,
       "{}: pre_tokenizer: behavior {} is not supported (known: Isolated, Removed, MergedWithPrevious, "
       "MergedWithNext, Contiguous)",
       what, name);
}

void PreTokenizer::add_split(const Json& config, const std::string& what) {
  const TextPattern pattern = pattern_field(config, "pre_tokenizer Split", what);
  Step step;
  step.behavior = behavior_of(string_field(config, "behavior", "pre_tokenizer Split", what), what);
  step.invert = bool_field(config, "invert", false, "pre_tokenizer Split", what);
  add_step(std::move(step), pattern.is_regex ? pattern.text : Regex::quote(pattern.text), what);
}

void PreTokenizer::add_metaspace(const Json& config, const std::string& what) {
  constexpr std::string_view where = "pre_tokenizer Metaspace";
  Step step;
  step.replace_spaces = true;
  step.prefix = prefix_scheme_field(config, where, what) == "never" ? Prefix::none : Prefix::always;
  if (prefix_scheme_field(config, where, what) == "first") step.prefix = Prefix::first;
  step.space = string_field(config, "replacement", where, what);
  if (step.space.empty()) fail(ErrorKind::data, "{}: {}: replacement is empty", what, where);
  step.behavior = Behavior::merged_with_next;
  const bool split = bool_field(config, "split", true, where, what);
  const std::string pattern = split ? Regex::quote(step.space) : "";
  add_step(std::move(step), pattern, what);
}

void PreTokenizer::add_step(Step step, const std::string& pattern, const std::string& what) {
  if (!pattern.empty()) step.regex.emplace_back(pattern, what + ": pre_tokenizer");
  const bool removed = step.behavior == Behavior::removed;
  description_ += format("{}{}{}:{}:{}\n", step.prefix != Prefix::none, !removed || step.invert,
                         !removed || !step.invert, pattern.size(), pattern);
  if (step.replace_spaces || (!removed && step.behavior != Behavior::isolated)) {
    description_ += format("{}:{}:{}:{}\n", static_cast<int>(step.behavior), step.invert,
                           static_cast<int>(step.prefix), step.replace_spaces ? step.space : "");
  }
  steps_.push_back(std::move(step));
}

void PreTokenizer::run(std::string_view piece, bool at_start, RegexScratch& scratch,
                       FunctionRef<void(std::string_view)> sink) const {
  if (piece.empty()) return;
  if (steps_.empty()) return sink(piece);
  const std::string twin = with_stand_ins(piece);
  apply(0, {piece, twin.empty() ? piece : std::string_view(twin), at_start}, scratch, sink);
}

void PreTokenizer::apply(std::size_t index, const Piece& piece, RegexScratch& scratch,
                         FunctionRef<void(std::string_view)> sink) const {
  if (index == steps_.size()) return sink(piece.text);
  const Step& step = steps_[index];
  if (step.replace_spaces) {
    std::string text = replace_all(piece.text, " ", step.space);
    std::string twin = replace_all(piece.twin, " ", step.space);
    const bool wanted = step.prefix == Prefix::always || (step.prefix == Prefix::first && piece.at_start);
    if (wanted && !text.starts_with(step.space)) text.insert(0, step.space), twin.insert(0, step.space);
    return cut(index, {text, twin, piece.at_start}, scratch, sink);
  }
  if (step.prefix == Prefix::none || piece.text.front() == ' ') return cut(index, piece, scratch, sink);
  const std::string text = " " + std::string(piece.text);
  const std::string twin = " " + std::string(piece.twin);
  cut(index, {text, twin, piece.at_start}, scratch, sink);
}

void PreTokenizer::cut(std::size_t index, const Piece& piece, RegexScratch& scratch,
                       FunctionRef<void(std::string_view)> sink) const {
  const Step& step = steps_[index];
  if (step.regex.empty()) return apply(index + 1, piece, scratch, sink);
  const bool direct = step.behavior == Behavior::isolated || step.behavior == Behavior::removed;
  std::vector<Span> spans;
  const auto found = [&](std::size_t begin, std::size_t end, bool match) {
    if (!direct) return spans.push_back({begin, end, match});
    if (step.behavior == Behavior::removed && match) return;
    apply(index + 1, piece.part(begin, end), scratch, sink);
  };
  const std::size_t size = piece.text.size();
  std::size_t done = 0;
  RegexMatch match;
  while (done < size && step.regex[0].find(piece.twin, done, scratch, match)) {
    if (match.begin > done) found(done, match.begin, step.invert);
    found(match.begin, match.end, !step.invert);
    done = match.end;
  }
  if (done < size) found(done, size, step.invert);
  if (direct) return;
  for (const Span& span : join(spans, step.behavior)) {
    apply(index + 1, piece.part(span.begin, span.end), scratch, sink);
  }
}

// A match joins its neighbour unless the span on that side is a match, too.
std::vector<PreTokenizer::Span> PreTokenizer::join(const std::vector<Span>& spans, Behavior behavior) {
  std::vector<Span> out;
  const bool backwards = behavior == Behavior::merged_with_next;
  bool previous_match = false;
  for (std::size_t i = 0; i < spans.size(); i++) {
    const Span& span = spans[backwards ? spans.size() - 1 - i : i];
    const bool joins = behavior == Behavior::contiguous ? !out.empty() && span.match == previous_match
                                                        : !out.empty() && span.match && !previous_match;
    previous_match = span.match;
    if (!joins) {
      out.push_back(span);
    } else if (backwards) {
      out.back().begin = span.begin;
    } else {
      out.back().end = span.end;
    }
  }
  if (backwards) std::ranges::reverse(out);
  return out;
}

}  // namespace lode::text
