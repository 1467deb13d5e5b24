// Tokenising text before step one into a content-addressed cache, and the prepared data set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/records.h"
#include "data/shard.h"

namespace lode {

// A record that is more than text: its tokens and how much each counts as a target (0: not at all).
struct EncodedRecord {
  std::vector<std::int32_t> tokens;
  std::vector<float> weights;
  std::int64_t text_bytes = 0;
};

// What preparation needs of a tokenizer.
struct TextEncoder {
  std::function<void(std::string_view text, std::vector<std::int32_t>& tokens)>
      encode;  // appends; thread-safe
  std::int32_t vocab_size = 0;
  std::optional<std::int32_t> eos_id;  // appended to each document
  std::string fingerprint;             // equal only for encoders that give equal tokens
  // True when text cut between a line feed and an ASCII letter encodes to the same tokens in two pieces
  // (byte-level BPE): long documents are then encoded by several threads.
  bool independent_lines = false;
  // When set, makes tokens and weights of a record in place of decode_record and `encode`, and nothing is
  // appended. Counts in the report as decode_record does; false: nothing to keep. Thread-safe.
  std::function<bool(const SourceFile&, RawRecord&, EncodedRecord&, ReadReport&)> encode_record;
};

struct PrepareOptions {
  ReadOptions read;
  std::string cache;  // folder, made when absent
  int threads = 1;
  std::int64_t shard_bytes =
      8 << 20;  // text between two points from which an interrupted preparation goes on
  std::function<void(std::int64_t text_bytes)> progress;  // after each stretch of work, on the calling thread
};

struct PrepareReport {
  ReadReport read;
  std::int64_t files = 0;
  std::int64_t shards_reused = 0, shards_made = 0;
  std::vector<std::string> notes;  // damaged cache files that were made again
  double time_seconds = 0;
};

// Tokenised documents in order, as one long stream. Immutable; safe to read from several threads.
class PreparedData {
 public:
  // Sources say where the documents of each shard come from: sources[i][Shard::origin's file].
  using Files = std::shared_ptr<const std::vector<std::string>>;
  PreparedData(std::vector<std::shared_ptr<const Shard>> shards, std::vector<Files> sources,
               std::string fingerprint, PrepareReport report);
  // Several data sets one after the other.
  struct NamedData {
    std::string name;
    std::shared_ptr<const PreparedData> data;
  };
  static std::shared_ptr<const PreparedData> join(const std::vector<NamedData>& parts);

  std::int64_t num_documents() const { return static_cast<std::int64_t>(ends_.size()); }
  std::int64_t num_tokens() const { return ends_.empty() ? 0 : ends_.back(); }
  std::int64_t begin_of(std::int64_t document) const { return document == 0 ? 0 : ends_[at(document - 1)]; }
  std::int64_t length_of(std::int64_t document) const { return ends_[at(document)] - begin_of(document); }
  void copy(std::int64_t first, std::int64_t count,
            std::int32_t* out) const;  // of the stream of all documents
  // How much tokens [first, first + count) count as targets; 1 for all of plain text.
  void copy_weights(std::int64_t first, std::int64_t count, float* out) const;
  bool has_weights() const { return has_weights_; }    // whether any differs from 1
  std::string origin_of(std::int64_t document) const;  // "file:line"

  // Data sets that were joined; one, without a name, otherwise.
  std::int32_t num_sets() const { return static_cast<std::int32_t>(sets_.size()); }
  std::int32_t set_of(std::int64_t document) const;
  const std::string& set_name(std::int32_t set) const { return sets_[at(set)].name; }
  std::int64_t set_begin(std::int32_t set) const { return sets_[at(set)].begin; }  // first document
  std::int64_t set_end(std::int32_t set) const {
    return set + 1 < num_sets() ? set_begin(set + 1) : num_documents();
  }
  // Of file contents, tokenizer and reading options: equal fingerprints mean equal tokens.
  const std::string& fingerprint() const { return fingerprint_; }
  const PrepareReport& report() const { return report_; }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  struct Set {
    std::string name;
    std::int64_t begin = 0;
  };
  std::size_t shard_at(std::int64_t token) const;

  std::vector<std::shared_ptr<const Shard>> shards_;
  std::vector<Files> sources_;
  std::vector<Set> sets_ = {{}};
  bool has_weights_ = false;
  std::vector<std::int64_t> shard_begins_;     // first token of each shard
  std::vector<std::int64_t> shard_documents_;  // first document of each shard
  std::vector<std::int64_t> ends_;             // one past each document's last token
  std::string fingerprint_;
  PrepareReport report_;
};

// Throws Error(data) when a file is missing or damaged, a record is bad under `fail`, or no document is left.
std::shared_ptr<const PreparedData> prepare_data(FileSystem& files, const std::vector<SourceFile>& sources,
                                                 const TextEncoder& encoder, const PrepareOptions& options);

}  // namespace lode
