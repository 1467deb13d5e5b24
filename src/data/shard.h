// One file of the cache of tokenised text: documents as tokens, with what was met while reading them.
// Little-endian; verified as a whole when opened, then read in place through a mapping.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "data/records.h"

namespace lode {

// Where a document was read: the file's place in its unit, and the line.
struct Origin {
  std::uint32_t file = 0, line = 1;
};

// Tokens up to `end` (of the shard), from the run before, count this much as targets.
struct WeightRun {
  std::uint32_t end = 0;
  float weight = 1;
};

struct ShardContents {
  std::vector<std::int32_t> tokens;
  std::vector<WeightRun> weights;        // ascending, up to the last token; none: every weight is 1
  std::vector<std::int64_t> lengths;     // tokens of each document
  std::vector<Origin> origins;           // of each document
  std::vector<std::int64_t> text_bytes;  // bytes of each document's text
  ReadReport report;
  std::int64_t num_records = 0;  // raw records consumed, dropped ones included
  bool last = false;             // no shard follows in its unit
};

// Written under a temporary name of its own and renamed, so that processes preparing the same data do not
// meet. Tokens take two bytes each when vocab_size < 65536, else four.
void write_shard(FileSystem& files, const std::string& path, const ShardContents& contents,
                 std::int32_t vocab_size);

class Shard {
 public:
  // Throws Error(data) with the reason when the file is not a whole, undamaged shard with tokens below
  // vocab_size.
  Shard(FileSystem& files, const std::string& path, std::int32_t vocab_size);

  std::int64_t num_documents() const { return num_documents_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  std::int64_t num_records() const { return num_records_; }
  bool last() const { return last_; }
  const ReadReport& report() const { return report_; }
  std::span<const std::uint64_t> ends() const { return {ends_, static_cast<std::size_t>(num_documents_)}; }
  std::span<const std::uint64_t> text_bytes() const {
    return {text_bytes_, static_cast<std::size_t>(num_documents_)};
  }
  std::span<const Origin> origins() const { return {origins_, static_cast<std::size_t>(num_documents_)}; }
  bool has_weights() const { return num_runs_ > 0; }
  void copy(std::int64_t first, std::int64_t count,
            std::int32_t* out) const;  // tokens [first, first + count)
  void copy_weights(std::int64_t first, std::int64_t count, float* out) const;

 private:
  void check(const std::string& path, std::int32_t vocab_size);

  std::unique_ptr<MappedFile> file_;
  const std::uint64_t* ends_ = nullptr;  // one past each document's last token
  const std::uint64_t* text_bytes_ = nullptr;
  const Origin* origins_ = nullptr;
  const WeightRun* runs_ = nullptr;
  const std::byte* tokens_ = nullptr;
  std::int64_t num_runs_ = 0, num_documents_ = 0, num_tokens_ = 0, num_records_ = 0;
  int token_bytes_ = 0;
  bool last_ = false;
  ReadReport report_;
};

}  // namespace lode
