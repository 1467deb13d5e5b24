// How each kind of file is cut into records; used by records.cc.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/byte_reader.h"
#include "data/records.h"

namespace lode {

// A file's text, piece by piece, without its byte order mark.
class ChunkReader {
 public:
  explicit ChunkReader(std::unique_ptr<ByteReader> bytes);

  // What is left of the current piece, after reading the next one when it was used up; empty at the end of
  // the file.
  std::string_view rest();
  void consume(std::size_t count) { begin_ += count; }
  bool holds_array();  // whether the first character that is not white space is [

 private:
  std::unique_ptr<ByteReader> bytes_;
  std::string chunk_;
  std::size_t begin_ = 0;
};

std::unique_ptr<RecordReader> read_json_lines(ChunkReader chunks, const ReadOptions& options);
std::unique_ptr<RecordReader> read_json_array(ChunkReader chunks, const ReadOptions& options);
// RFC 4180 with a header line; each further line becomes a JSON object of strings.
std::unique_ptr<RecordReader> read_csv(ChunkReader chunks, const ReadOptions& options);
std::unique_ptr<RecordReader> read_text(ChunkReader chunks, const ReadOptions& options);

}  // namespace lode
