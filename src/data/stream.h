// A data set that is never prepared: documents in the order of the files, tokenised as they are read and cut
// into blocks, again from the first file at the end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "data/loader.h"

namespace lode {

struct StreamOptions {
  ReadOptions read;
  std::int32_t cutoff_len = 2048;             // at least 2
  std::int64_t max_documents = 0;             // of each pass only the first ones; 0: all
  std::vector<std::int32_t> bytes_per_token;  // as RowOptions
  std::int64_t rows_per_micro_batch = 1;
  std::int64_t micro_batches_per_step = 1;
  std::function<void(const std::string&)> on_bad_record;  // the first few skipped ones; on next()'s thread
};

// The blocks of a pass are those of Packing::blocks, its short last one included; a step is always whole, so
// it may hold blocks of two passes. For one thread at a time.
class StreamLoader {
 public:
  // Throws Error(data) when there is no source or one is missing; reads nothing of them.
  StreamLoader(FileSystem& files, std::vector<SourceFile> sources, TextEncoder encoder,
               StreamOptions options);

  // The next step. `epoch` counts whole passes, `position` is where the stream goes on after the step. Throws
  // Error(data) on a bad record under `fail` and when a whole pass has no block.
  Step next();
  // Goes to the `position` of a step: later steps are those that followed it. Records before it are read but
  // not tokenised. Throws Error(data) when the files have no such place.
  void seek(const Json& position);
  // Of paths, sizes, tokenizer and options; what the files hold is not read.
  std::string fingerprint() const;
  const std::vector<SourceFile>& sources() const { return sources_; }
  std::int64_t num_bytes() const;  // of the files, as stored

 private:
  struct Block {
    std::vector<std::int32_t> tokens;
    std::int64_t id = 0;
  };
  Block next_block();
  bool read_document();
  void begin_pass();
  Json position() const;

  FileSystem& files_;
  std::vector<SourceFile> sources_;
  std::vector<std::uint64_t> sizes_;
  TextEncoder encoder_;
  StreamOptions options_;
  ReadReport report_;

  std::unique_ptr<RecordReader> reader_;
  std::size_t file_ = 0;
  std::int64_t record_ = 0;     // of the file: read so far
  std::int64_t documents_ = 0;  // of the pass: read so far
  std::int64_t epoch_ = 0, next_id_ = 0;
  bool any_block_ = false;            // in this pass
  std::vector<std::int32_t> tokens_;  // of the current document
  std::size_t used_ = 0;              // of tokens_
};

}  // namespace lode
