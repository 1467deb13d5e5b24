// Documents of a source file: raw records are cut out in order, then turned into text, which may be done in
// parallel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "data/sources.h"

namespace lode {

enum class BadRecords { fail, skip };

struct ReadOptions {
  std::string text_column = "text";  // of JSON records
  std::string separator;             // between documents of a text file; empty: the file is one document
  BadRecords bad_records = BadRecords::fail;  // broken, wrong type, not UTF-8, NUL
  std::size_t max_record_bytes = 256u << 20;  // a longer line, array element or separated document is bad
  std::size_t max_document_bytes = 1u << 30;  // of a text file that is one document
};

// What was met while reading. Bad records are counted by reason; the first few are listed as "file:line:
// reason".
struct ReadReport {
  std::int64_t documents = 0, text_bytes = 0;
  std::int64_t empty = 0;  // dropped: nothing but white space
  std::int64_t crlf = 0;   // text documents whose CRLF became LF
  std::map<std::string, std::int64_t> bad;
  std::vector<std::string> bad_examples;
  std::map<std::string, std::int64_t> dropped;  // good records with nothing to train on, by reason
  std::vector<std::string> dropped_examples;    // the first few, "file:line: reason"
  std::map<std::string, std::int64_t> odd;      // records that are kept although something is odd, by what
  std::vector<std::string> odd_examples;        // the first few, "file:line: detail"

  void add(const ReadReport& other);
  std::int64_t num_bad() const;
  std::string dropped_text() const;  // "; 3 without a target (file:line: ...)", or nothing
  Json to_json() const;
  static ReadReport from_json(const Json& json);  // throws Error(data)
  std::vector<std::string> lines() const;         // for people; nothing when nothing was odd
};

// One undigested record. Line numbers count from 1.
struct RawRecord {
  std::string text;
  std::int64_t line = 1;
  bool normalized = false;  // CRLF became LF
  std::string bad;          // reason, when the record is too long or the file breaks off here
};

// Cuts a file into records: lines or array elements of JSON (whichever the file holds, whatever it is
// called), documents of text. A leading byte order mark is dropped. Memory is bounded by the longest record.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual bool next(RawRecord& record) = 0;  // false at the end
};
std::unique_ptr<RecordReader> open_records(FileSystem& files, const SourceFile& source,
                                           const ReadOptions& options);

// Turns a record into its text and counts it. False when there is nothing to keep: empty, or bad under
// `skip`. Under `fail` throws Error(data) "file:line: reason".
bool decode_record(const SourceFile& source, const ReadOptions& options, RawRecord& record, std::string& text,
                   ReadReport& report);

// The JSON value of a record that comes from a JSON or CSV file; counts and throws as decode_record does, but
// not the good ones.
bool decode_json(const SourceFile& source, const ReadOptions& options, RawRecord& record, Json& json,
                 ReadReport& report);

// A bad record: throws under `fail`, else counts it under `reason` with "file:line: detail" as an example.
void reject_record(const SourceFile& source, BadRecords bad_records, const RawRecord& record,
                   const std::string& reason, const std::string& detail, ReadReport& report);
// A good record with nothing to train on: counted and listed.
void drop_record(const SourceFile& source, const RawRecord& record, const std::string& reason,
                 ReadReport& report);
// A record that is kept: counted under `what`, with "file:line: detail" as an example.
void note_record(const SourceFile& source, const RawRecord& record, const std::string& what,
                 const std::string& detail, ReadReport& report);

}  // namespace lode
