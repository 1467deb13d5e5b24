#include <algorithm>
#include <set>

#include "core/fail.h"
#include "data/record_readers.h"
#include "data/utf8.h"

namespace lode {
namespace {

// Fields are separated by commas; a field in quotes may hold commas, line ends and doubled quotes. Records
// end in LF, CRLF or CR. Empty lines are skipped.
class Csv : public RecordReader {
 public:
  Csv(ChunkReader chunks, std::size_t limit) : chunks_(std::move(chunks)), limit_(limit) {}

  bool next(RawRecord& record) override {
    record = {};
    if (!started_) {
      started_ = true;
      if (!read_header(record)) return !record.bad.empty();
    }
    if (done_ || !read_fields(record)) return !record.bad.empty();
    if (record.bad.empty() && fields_.size() != header_.size()) {
      record.bad = format("{} fields where the header has {}", fields_.size(), header_.size());
    }
    if (record.bad.empty() &&
        !std::ranges::all_of(fields_, [](const std::string& field) { return !find_invalid_utf8(field); })) {
      record.bad = "not UTF-8";
    }
    if (!record.bad.empty()) return true;
    Json object = Json::object();
    for (std::size_t i = 0; i < header_.size(); ++i)
      object.as_object().emplace_back(header_[i], std::move(fields_[i]));
    record.text = object.dump();
    return true;
  }

 private:
  bool read_header(RawRecord& record) {
    if (!read_fields(record)) return false;
    header_ = std::move(fields_);
    std::set<std::string> seen;
    for (const std::string& name : header_) {
      if (find_invalid_utf8(name)) {
        record.bad = "the header is not UTF-8";
      } else if (name.empty()) {
        record.bad = "the header has a column without a name";
      } else if (!seen.insert(name).second) {
        record.bad = format("the header names the column \"{}\" twice", name);
      }
    }
    done_ = !record.bad.empty();
    return !done_;
  }

  // The next record that is not an empty line; false at the end of the file.
  bool read_fields(RawRecord& record) {
    do {
      fields_.assign(1, {});
      record.line = line_;
      if (chunks_.rest().empty()) return false;
      read_record(record);
    } while (record.bad.empty() && fields_.size() == 1 && fields_[0].empty() && !quoted_);
    return true;
  }

  void read_record(RawRecord& record) {
    quoted_ = false;
    std::size_t size = 0;
    for (int c = get(); c >= 0 && c != '\n'; c = get()) {
      if (++size > limit_) record.bad = format("longer than {} bytes", limit_);
      if (c == ',') {
        fields_.emplace_back();
        quoted_field_ = false;
      } else if (c == '"' && fields_.back().empty() && !quoted_field_) {
        quoted_ = quoted_field_ = true;
        if (!read_quoted(record, size)) return;
      } else {
        if (quoted_field_ && record.bad.empty()) record.bad = "text behind a closing quote";
        if (record.bad.empty()) fields_.back() += static_cast<char>(c);
      }
    }
    quoted_field_ = false;
  }

  // Up to the closing quote; false when the file ends before.
  bool read_quoted(RawRecord& record, std::size_t& size) {
    for (int c = get_raw(); c >= 0; c = get_raw()) {
      if (++size > limit_) record.bad = format("longer than {} bytes", limit_);
      if (c == '\n') ++line_;
      if (c == '"') {
        if (peek() != '"') return true;
        get_raw();
      }
      if (record.bad.empty()) fields_.back() += static_cast<char>(c);
    }
    record.bad = "a quote is not closed";
    done_ = true;
    return false;
  }

  // A character outside of quotes, line ends as LF; -1 at the end.
  int get() {
    int c = get_raw();
    if (c == '\r') {
      if (peek() == '\n') get_raw();
      c = '\n';
    }
    if (c == '\n') ++line_;
    return c;
  }
  int peek() {
    const std::string_view rest = chunks_.rest();
    return rest.empty() ? -1 : static_cast<unsigned char>(rest.front());
  }
  int get_raw() {
    const int c = peek();
    if (c >= 0) chunks_.consume(1);
    return c;
  }

  ChunkReader chunks_;
  std::size_t limit_;
  std::vector<std::string> header_, fields_;
  std::int64_t line_ = 1;
  bool started_ = false, done_ = false;
  bool quoted_ = false;        // a field of the record was in quotes
  bool quoted_field_ = false;  // the current one was
};

}  // namespace

std::unique_ptr<RecordReader> read_csv(ChunkReader chunks, const ReadOptions& options) {
  return std::make_unique<Csv>(std::move(chunks), options.max_record_bytes);
}

}  // namespace lode
