#include "text/normalizer.h"

#include "core/fail.h"
#include "text/json_fields.h"

namespace lode::text {
namespace {

std::string replace_matches(const Regex& regex, std::string_view text, std::string_view content,
                            RegexScratch& scratch) {
  const std::string stand_ins = with_stand_ins(text);
  const std::string_view twin = stand_ins.empty() ? text : std::string_view(stand_ins);
  std::string out;
  std::size_t done = 0;
  RegexMatch match;
  while (done < text.size() && regex.find(twin, done, scratch, match)) {
    out.append(text.substr(done, match.begin - done)).append(content);
    done = match.end;
  }
  return out.append(text.substr(done));
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size()) {
    out.append(text.substr(done, at - done)).append(to);
  }
  return out.append(text.substr(done));
}

Normalizer::Normalizer(const Json& config, const std::string& what) {
  if (!config.is_null()) add(config, what);
}

void Normalizer::add(const Json& config, const std::string& what) {
  const std::string type = type_of(config, "normalizer", what);
  const std::pair<std::string_view, NormalForm> forms[] = {{"NFC", NormalForm::nfc},
                                                           {"NFD", NormalForm::nfd},
                                                           {"NFKC", NormalForm::nfkc},
                                                           {"NFKD", NormalForm::nfkd}};
  for (const auto& [name, form] : forms) {
    if (type == name) return add_step({.kind = Kind::form, .form = form}, type);
  }
  if (type == "Sequence") {
    for (const Json& part : array_field(config, "normalizers", "normalizer", what)) add(part, what);
  } else if (type == "Lowercase") {
    add_step({.kind = Kind::lowercase}, type);
  } else if (type == "StripAccents") {
    add_step({.kind = Kind::strip_accents}, type);
  } else if (type == "ByteLevel") {
    add_step({.kind = Kind::byte_level}, type);
  } else if (type == "Strip") {
    add_step({.kind = Kind::strip,
              .left = bool_field(config, "strip_left", true, "normalizer Strip", what),
              .right = bool_field(config, "strip_right", true, "normalizer Strip", what)},
             type);
  } else if (type == "Prepend") {
    add_step({.kind = Kind::prepend, .content = string_field(config, "prepend", "normalizer Prepend", what)},
             type);
  } else if (type == "Replace") {
    add_replace(config, what);
  } else {
    fail(ErrorKind::data,
         "{}: normalizer {} is not supported (known: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, "
         "Replace, Prepend, ByteLevel, Sequence)",
         what, type);
  }
}

void Normalizer::add_replace(const Json& config, const std::string& what) {
  const TextPattern pattern = pattern_field(config, "normalizer Replace", what);
  Step step{.kind = Kind::replace,
            .pattern = pattern.text,
            .content = string_field(config, "content", "normalizer Replace", what)};
  if (pattern.is_regex) step.regex.emplace_back(pattern.text, what + ": normalizer");
  add_step(std::move(step), pattern.is_regex ? "Replace regex" : "Replace");
}

void Normalizer::add_step(Step step, std::string_view name) {
  description_ += format("{}:{}:{}:{}:{}:{}:{}\n", name, step.left, step.right, step.pattern.size(),
                         step.pattern, step.content.size(), step.content);
  steps_.push_back(std::move(step));
}

bool Normalizer::only_nfc() const {
  for (const Step& step : steps_) {
    if (step.kind != Kind::form || step.form != NormalForm::nfc) return false;
  }
  return !steps_.empty();
}

std::string Normalizer::apply(const Step& step, std::string text, RegexScratch& scratch) {
  switch (step.kind) {
    case Kind::form:
      return normalize(text, step.form);
    case Kind::lowercase:
      return lowercase(text);
    case Kind::strip:
      return std::string(strip_white_space(text, step.left, step.right));
    case Kind::strip_accents:
      return without_marks(text);
    case Kind::replace:
      if (!step.regex.empty()) return replace_matches(step.regex[0], text, step.content, scratch);
      return replace_all(text, step.pattern, step.content);
    case Kind::prepend:
      return text.empty() ? text : step.content + text;
    case Kind::byte_level:
      return bytes_to_alphabet(text);
  }
  return text;
}

std::string Normalizer::run(std::string_view text, RegexScratch& scratch) const {
  std::string out(text);
  for (const Step& step : steps_) out = apply(step, std::move(out), scratch);
  return out;
}

}  // namespace lode::text
