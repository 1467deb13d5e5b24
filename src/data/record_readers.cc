#include "data/record_readers.h"

#include <algorithm>
#include <deque>

#include "core/fail.h"

namespace lode {
namespace {

constexpr std::size_t kChunk = 256u << 10;
constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string too_long(std::size_t limit) {
  return format("longer than {}", format_bytes(limit));
}

// Appends a part of a record, or gives the record up when it grows beyond the limit.
void append(RawRecord& record, std::string_view part, std::size_t limit) {
  if (!record.bad.empty()) return;
  if (part.size() > limit - record.text.size()) {
    record.bad = too_long(limit);
    record.text = {};
  } else {
    record.text += part;
  }
}

class JsonLines : public RecordReader {
 public:
  JsonLines(ChunkReader chunks, std::size_t limit) : chunks_(std::move(chunks)), limit_(limit) {}

  bool next(RawRecord& record) override {
    while (next_line(record)) {
      if (!record.bad.empty() || record.text.find_first_not_of(kWhiteSpace) != std::string::npos) return true;
    }
    return false;
  }

 private:
  bool next_line(RawRecord& record) {
    record = {};
    record.line = line_;
    if (chunks_.rest().empty()) return false;
    for (std::string_view rest = chunks_.rest(); !rest.empty(); rest = chunks_.rest()) {
      const std::size_t end = rest.find('\n');
      append(record, rest.substr(0, end), limit_);
      chunks_.consume(end == std::string_view::npos ? rest.size() : end + 1);
      if (end != std::string_view::npos) break;
    }
    ++line_;
    if (record.text.ends_with('\r')) record.text.pop_back();
    return true;
  }

  ChunkReader chunks_;
  std::size_t limit_;
  std::int64_t line_ = 1;
};

// The elements of one array, each cut out by its brackets and strings; what they hold is checked later.
class JsonArray : public RecordReader {
 public:
  JsonArray(ChunkReader chunks, std::size_t limit) : chunks_(std::move(chunks)), limit_(limit) {
    skip_space();
    chunks_.consume(1);  // the [ that made the file an array
  }

  bool next(RawRecord& record) override {
    record = {};
    if (done_) return false;
    const char c = skip_space();
    record.line = line_;
    if (chunks_.rest().empty()) return broken(record, "the array is not closed");
    if (c == ']') return finish(record);
    if (!first_) {
      if (c != ',') return broken(record, "no comma after an array element");
      chunks_.consume(1);
      skip_space();
      record.line = line_;
    }
    first_ = false;
    scan_element(record);
    return true;
  }

 private:
  // Skips white space; the next character, NUL at the end.
  char skip_space() {
    for (std::string_view rest = chunks_.rest(); !rest.empty(); rest = chunks_.rest()) {
      const std::size_t end = std::min(rest.find_first_not_of(kWhiteSpace), rest.size());
      line_ += std::ranges::count(rest.substr(0, end), '\n');
      chunks_.consume(end);
      if (end < rest.size()) return rest[end];
    }
    return '\0';
  }
  bool finish(RawRecord& record) {
    done_ = true;
    chunks_.consume(1);
    const char c = skip_space();
    record.line = line_;
    return c == '\0' && chunks_.rest().empty() ? false : broken(record, "text after the end of the array");
  }
  bool broken(RawRecord& record, std::string_view reason) {
    done_ = true;
    record.bad = reason;
    return true;
  }
  // Up to the comma or bracket that ends the element, which stays.
  void scan_element(RawRecord& record) {
    int depth = 0;
    bool in_string = false, escaped = false;
    for (std::string_view rest = chunks_.rest(); !rest.empty(); rest = chunks_.rest()) {
      for (std::size_t i = 0; i < rest.size(); ++i) {
        const char c = rest[i];
        if (c == '\n') ++line_;
        if (in_string) {
          if (!escaped && c == '"') in_string = false;
          escaped = !escaped && c == '\\';
        } else if (c == '"') {
          in_string = true;
        } else if (c == '{' || c == '[') {
          ++depth;
        } else if (depth == 0 && (c == ',' || c == ']')) {
          append(record, rest.substr(0, i), limit_);
          chunks_.consume(i);
          return;
        } else if (depth > 0 && (c == '}' || c == ']')) {
          --depth;
        }
      }
      append(record, rest, limit_);
      chunks_.consume(rest.size());
    }
    if (depth > 0 || in_string) broken(record, "the file ends within an array element");
  }

  ChunkReader chunks_;
  std::size_t limit_;
  std::int64_t line_ = 1;
  bool first_ = true, done_ = false;
};

// Text with CRLF turned into LF; `returns` gives the places in it where a CR was left out.
class Normalizer {
 public:
  explicit Normalizer(ChunkReader chunks) : chunks_(std::move(chunks)) {}

  // Appends the next piece; false at the end of the file.
  bool append_to(std::string& text, std::deque<std::size_t>& returns) {
    std::string_view rest = chunks_.rest();
    if (rest.empty()) {
      if (held_return_) text += '\r';
      return std::exchange(held_return_, false);
    }
    const std::size_t size = rest.size();
    if (held_return_) {
      if (rest.front() == '\n') {
        returns.push_back(text.size());
      } else {
        text += '\r';
      }
      held_return_ = false;
    }
    while (!rest.empty()) {
      const std::size_t at = rest.find('\r');
      text += rest.substr(0, at);
      if (at == std::string_view::npos) break;
      rest.remove_prefix(at + 1);
      if (rest.empty()) {
        held_return_ = true;
      } else if (rest.front() == '\n') {
        returns.push_back(text.size());
      } else {
        text += '\r';
      }
    }
    chunks_.consume(size);
    return true;
  }

 private:
  ChunkReader chunks_;
  bool held_return_ = false;  // the last piece ended in CR
};

// A whole file.
class WholeText : public RecordReader {
 public:
  WholeText(ChunkReader chunks, std::size_t limit) : text_(std::move(chunks)), limit_(limit) {}

  bool next(RawRecord& record) override {
    record = {};
    if (done_) return false;
    done_ = true;
    std::deque<std::size_t> returns;
    while (text_.append_to(record.text, returns)) {
      record.normalized = record.normalized || !returns.empty();
      returns.clear();
      if (record.text.size() > limit_) {
        record.bad = too_long(limit_) + "; choose a separator between documents";
        record.text = {};
        break;
      }
    }
    return true;
  }

 private:
  Normalizer text_;
  std::size_t limit_;
  bool done_ = false;
};

class SeparatedText : public RecordReader {
 public:
  SeparatedText(ChunkReader chunks, const ReadOptions& options)
      : text_(std::move(chunks)), separator_(options.separator), limit_(options.max_record_bytes) {}

  bool next(RawRecord& record) override {
    record = {};
    record.line = line_;
    if (done_ && begin_ == buffer_.size()) return false;
    std::size_t scanned = begin_;
    for (;;) {
      const std::size_t end = buffer_.find(separator_, scanned);
      if (end != std::string::npos) {
        take(record, end);
        skip(separator_.size());
        return true;
      }
      // A separator may begin in this piece and end in the next.
      scanned = std::max(begin_, buffer_.size() - std::min(buffer_.size(), separator_.size() - 1));
      if (scanned - begin_ > limit_) {
        take(record, scanned);
        record.bad = too_long(limit_);
        record.text = {};
      }
      if (done_ || !fill(scanned)) break;
    }
    take(record, buffer_.size());
    return !record.text.empty() || !record.bad.empty();
  }

 private:
  // Reads on; what was taken before leaves the buffer.
  bool fill(std::size_t& scanned) {
    buffer_.erase(0, begin_);
    for (std::size_t& at : returns_) at -= begin_;
    scanned -= begin_;
    begin_ = 0;
    done_ = !text_.append_to(buffer_, returns_);
    return !done_;
  }
  void take(RawRecord& record, std::size_t end) {
    append(record, std::string_view(buffer_).substr(begin_, end - begin_), limit_);
    record.normalized = skip(end - begin_) || record.normalized;
  }
  // Whether a CR was left out in what is skipped.
  bool skip(std::size_t count) {
    line_ += std::ranges::count(std::string_view(buffer_).substr(begin_, count), '\n');
    begin_ += count;
    bool normalized = false;
    for (; !returns_.empty() && returns_.front() < begin_; returns_.pop_front()) normalized = true;
    return normalized;
  }

  Normalizer text_;
  std::string separator_;
  std::size_t limit_;
  std::string buffer_;
  std::size_t begin_ = 0;
  std::deque<std::size_t> returns_;
  std::int64_t line_ = 1;
  bool done_ = false;
};

}  // namespace

ChunkReader::ChunkReader(std::unique_ptr<ByteReader> bytes) : bytes_(std::move(bytes)) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (rest().starts_with(kMark)) consume(kMark.size());
}

std::string_view ChunkReader::rest() {
  if (begin_ == chunk_.size()) {
    chunk_.resize(kChunk);
    std::size_t used = 0;
    // Filled up, so that a byte order mark is never cut by a short read.
    for (std::size_t n = 1; n > 0 && used < kChunk; used += n)
      n = bytes_->read(chunk_.data() + used, kChunk - used);
    chunk_.resize(used);
    begin_ = 0;
  }
  return std::string_view(chunk_).substr(begin_);
}

bool ChunkReader::holds_array() {
  const std::string_view text = rest();
  const std::size_t at = text.find_first_not_of(kWhiteSpace);
  return at != std::string_view::npos && text[at] == '[';
}

std::unique_ptr<RecordReader> read_json_lines(ChunkReader chunks, const ReadOptions& options) {
  return std::make_unique<JsonLines>(std::move(chunks), options.max_record_bytes);
}

std::unique_ptr<RecordReader> read_json_array(ChunkReader chunks, const ReadOptions& options) {
  return std::make_unique<JsonArray>(std::move(chunks), options.max_record_bytes);
}

std::unique_ptr<RecordReader> read_text(ChunkReader chunks, const ReadOptions& options) {
  if (options.separator.empty())
    return std::make_unique<WholeText>(std::move(chunks), options.max_document_bytes);
  return std::make_unique<SeparatedText>(std::move(chunks), options);
}

}  // namespace lode
