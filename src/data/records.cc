#include "data/records.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "core/fail.h"
#include "data/record_readers.h"
#include "data/utf8.h"

namespace lode {
namespace {

constexpr std::size_t kMaxExamples = 5;

struct Problem {
  std::string reason;  // the kind, under which it is counted
  std::string detail;  // "file:line: ..."
};

// Line number and place in the line of text[at].
std::string place_in(const SourceFile& source, const RawRecord& record, std::string_view text, std::size_t at,
                     std::string_view what) {
  const std::string_view before = text.substr(0, at);
  const auto line = record.line + std::ranges::count(before, '\n');
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return format("{}:{}: {} (byte {} of the line)", source.path, line, what, at - line_start + 1);
}

std::optional<Problem> find_bad_bytes(const SourceFile& source, const RawRecord& record) {
  if (const std::size_t at = record.text.find('\0'); at != std::string::npos) {
    return Problem{"NUL byte", place_in(source, record, record.text, at, "NUL byte")};
  }
  if (const auto at = find_invalid_utf8(record.text)) {
    return Problem{"not UTF-8", place_in(source, record, record.text, *at, "not UTF-8")};
  }
  return std::nullopt;
}

std::optional<Problem> find_unreadable(const SourceFile& source, const RawRecord& record) {
  if (record.bad.empty()) return find_bad_bytes(source, record);
  return Problem{record.bad, format("{}:{}: {}", source.path, record.line, record.bad)};
}

void count_bad(BadRecords bad_records, const Problem& problem, ReadReport& report) {
  if (bad_records == BadRecords::fail) {
    fail(ErrorKind::data, "{}; correct the record or choose to skip bad records", problem.detail);
  }
  ++report.bad[problem.reason];
  if (report.bad_examples.size() < kMaxExamples) report.bad_examples.push_back(problem.detail);
}

std::string names_of(const Json& object) {
  std::string names;
  for (const auto& [name, value] : object.as_object()) {
    if (names.size() > 200) return names + ", ...";
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names.empty() ? "nothing" : names;
}

std::optional<Problem> parse(const SourceFile& source, const RawRecord& record, Json& json) {
  try {
    json = parse_json(record.text, format("{}:{}", source.path, record.line));
  } catch (const Error& error) {
    return Problem{"broken JSON", error.what()};
  }
  return std::nullopt;
}

std::optional<Problem> parse_text(const SourceFile& source, const ReadOptions& options,
                                  const RawRecord& record, std::string& text) {
  const std::string where = format("{}:{}", source.path, record.line);
  Json json;
  if (auto problem = parse(source, record, json)) return problem;
  if (!json.is_object()) {
    return Problem{"not an object", format("{}: expected a JSON object with the field \"{}\", found {}",
                                           where, options.text_column, json.type_name())};
  }
  const Json* field = json.find(options.text_column);
  if (field == nullptr) {
    return Problem{"missing field", format("{}: no field \"{}\"; the record has {}", where,
                                           options.text_column, names_of(json))};
  }
  if (!field->is_string()) {
    return Problem{"wrong type", format("{}: the field \"{}\" must be a string, found {}", where,
                                        options.text_column, field->type_name())};
  }
  text = field->as_string();
  if (text.find('\0') != std::string::npos) {
    return Problem{"NUL byte", format("{}: the field \"{}\" contains NUL", where, options.text_column)};
  }
  return std::nullopt;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

}  // namespace

void ReadReport::add(const ReadReport& other) {
  documents += other.documents;
  text_bytes += other.text_bytes;
  empty += other.empty;
  crlf += other.crlf;
  for (const auto& [reason, count] : other.bad) bad[reason] += count;
  for (const std::string& example : other.bad_examples) {
    if (bad_examples.size() < kMaxExamples) bad_examples.push_back(example);
  }
  for (const auto& [reason, count] : other.dropped) dropped[reason] += count;
  for (const std::string& example : other.dropped_examples) {
    if (dropped_examples.size() < kMaxExamples) dropped_examples.push_back(example);
  }
  for (const auto& [what, count] : other.odd) odd[what] += count;
  for (const std::string& example : other.odd_examples) {
    if (odd_examples.size() < kMaxExamples) odd_examples.push_back(example);
  }
}

std::string ReadReport::dropped_text() const {
  std::string text;
  for (const auto& [reason, count] : dropped) text += format("; {} dropped: {}", count, reason);
  if (!dropped_examples.empty()) text += format(" ({})", dropped_examples.front());
  return text;
}

std::int64_t ReadReport::num_bad() const {
  std::int64_t total = 0;
  for (const auto& [reason, count] : bad) total += count;
  return total;
}

Json ReadReport::to_json() const {
  Json reasons = Json::object(), examples = Json::array();
  for (const auto& [reason, count] : bad) reasons[reason] = count;
  for (const std::string& example : bad_examples) examples.push_back(example);
  Json json = Json::object({{"documents", documents},
                            {"text_bytes", text_bytes},
                            {"empty", empty},
                            {"crlf", crlf},
                            {"bad", std::move(reasons)},
                            {"bad_examples", std::move(examples)}});
  for (const auto& [reason, count] : dropped) json["dropped"][reason] = count;
  for (const std::string& example : dropped_examples) json["dropped_examples"].push_back(example);
  for (const auto& [what, count] : odd) json["odd"][what] = count;
  for (const std::string& example : odd_examples) json["odd_examples"].push_back(example);
  return json;
}

ReadReport ReadReport::from_json(const Json& json) {
  ReadReport report;
  report.documents = json.at("documents").as_int();
  report.text_bytes = json.at("text_bytes").as_int();
  report.empty = json.at("empty").as_int();
  report.crlf = json.at("crlf").as_int();
  for (const auto& [reason, count] : json.at("bad").as_object()) report.bad[reason] = count.as_int();
  for (const Json& example : json.at("bad_examples").as_array()) {
    report.bad_examples.push_back(example.as_string());
  }
  if (const Json* dropped = json.find("dropped")) {
    for (const auto& [reason, count] : dropped->as_object()) report.dropped[reason] = count.as_int();
    for (const Json& example : json.at("dropped_examples").as_array()) {
      report.dropped_examples.push_back(example.as_string());
    }
  }
  if (const Json* odd = json.find("odd")) {
    for (const auto& [what, count] : odd->as_object()) report.odd[what] = count.as_int();
    for (const Json& example : json.at("odd_examples").as_array())
      report.odd_examples.push_back(example.as_string());
  }
  return report;
}

std::vector<std::string> ReadReport::lines() const {
  std::vector<std::string> lines;
  if (empty > 0) lines.push_back(format("{} empty documents dropped", empty));
  if (crlf > 0) lines.push_back(format("{} text documents had CRLF line ends, now LF", crlf));
  for (const auto& [reason, count] : bad)
    lines.push_back(format("{} bad records skipped: {}", count, reason));
  for (const std::string& example : bad_examples) lines.push_back("  " + example);
  for (const auto& [reason, count] : dropped)
    lines.push_back(format("{} records dropped: {}", count, reason));
  for (const std::string& example : dropped_examples) lines.push_back("  " + example);
  for (const auto& [what, count] : odd) lines.push_back(format("{} records kept with {}", count, what));
  for (const std::string& example : odd_examples) lines.push_back("  " + example);
  return lines;
}

std::unique_ptr<RecordReader> open_records(FileSystem& files, const SourceFile& source,
                                           const ReadOptions& options) {
  ChunkReader chunks(open_bytes(files, source.path, source.compression));
  if (source.format == FileFormat::text) return read_text(std::move(chunks), options);
  if (source.format == FileFormat::csv) return read_csv(std::move(chunks), options);
  return chunks.holds_array() ? read_json_array(std::move(chunks), options)
                              : read_json_lines(std::move(chunks), options);
}

void reject_record(const SourceFile& source, BadRecords bad_records, const RawRecord& record,
                   const std::string& reason, const std::string& detail, ReadReport& report) {
  count_bad(bad_records, {reason, format("{}:{}: {}", source.path, record.line, detail)}, report);
}

void drop_record(const SourceFile& source, const RawRecord& record, const std::string& reason,
                 ReadReport& report) {
  ++report.dropped[reason];
  if (report.dropped_examples.size() < kMaxExamples) {
    report.dropped_examples.push_back(format("{}:{}: {}", source.path, record.line, reason));
  }
}

void note_record(const SourceFile& source, const RawRecord& record, const std::string& what,
                 const std::string& detail, ReadReport& report) {
  ++report.odd[what];
  if (report.odd_examples.size() < kMaxExamples)
    report.odd_examples.push_back(format("{}:{}: {}", source.path, record.line, detail));
}

bool decode_json(const SourceFile& source, const ReadOptions& options, RawRecord& record, Json& json,
                 ReadReport& report) {
  std::optional<Problem> problem = find_unreadable(source, record);
  if (!problem) problem = parse(source, record, json);
  if (problem) count_bad(options.bad_records, *problem, report);
  return !problem;
}

bool decode_record(const SourceFile& source, const ReadOptions& options, RawRecord& record, std::string& text,
                   ReadReport& report) {
  std::optional<Problem> problem = find_unreadable(source, record);
  if (!problem && source.format != FileFormat::text) problem = parse_text(source, options, record, text);
  if (problem) {
    count_bad(options.bad_records, *problem, report);
    return false;
  }
  if (source.format == FileFormat::text) text = std::move(record.text);
  if (is_blank(text)) {
    ++report.empty;
    return false;
  }
  ++report.documents;
  report.text_bytes += static_cast<std::int64_t>(text.size());
  if (record.normalized) ++report.crlf;
  return true;
}

}  // namespace lode
