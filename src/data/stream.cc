#include "data/stream.h"

#include <algorithm>
#include <numeric>

#include "core/fail.h"
#include "data/digest.h"

namespace lode {

StreamLoader::StreamLoader(FileSystem& files, std::vector<SourceFile> sources, TextEncoder encoder,
                           StreamOptions options)
    : files_(files),
      sources_(std::move(sources)),
      encoder_(std::move(encoder)),
      options_(std::move(options)) {
  LODE_ASSERT(encoder_.encode && options_.cutoff_len >= 2);
  LODE_ASSERT(options_.rows_per_micro_batch > 0 && options_.micro_batches_per_step > 0);
  if (sources_.empty()) fail(ErrorKind::data, "the data set is empty: it names no file");
  for (const SourceFile& source : sources_) sizes_.push_back(files_.size(source.path));
}

std::int64_t StreamLoader::num_bytes() const {
  return static_cast<std::int64_t>(std::accumulate(sizes_.begin(), sizes_.end(), std::uint64_t{0}));
}

// Bad records are left out: a run that met one may go on with them skipped.
std::string StreamLoader::fingerprint() const {
  Digest digest;
  digest.field("stream").field(encoder_.fingerprint).field(encoder_.vocab_size);
  digest.field(encoder_.eos_id ? std::int64_t{*encoder_.eos_id} : -1);
  digest.field(options_.cutoff_len).field(options_.max_documents);
  digest.field(options_.read.text_column).field(options_.read.separator);
  digest.field(static_cast<std::int64_t>(options_.read.max_record_bytes));
  digest.field(static_cast<std::int64_t>(options_.read.max_document_bytes));
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    digest.field(sources_[i].path).field(static_cast<std::int64_t>(sizes_[i]));
    digest.field(static_cast<std::int64_t>(sources_[i].format));
    digest.field(static_cast<std::int64_t>(sources_[i].compression));
  }
  return digest.hex();
}

// Makes the next document of the pass the current one; false at the end of the pass.
bool StreamLoader::read_document() {
  tokens_.clear();
  used_ = 0;
  if (options_.max_documents > 0 && documents_ >= options_.max_documents) return false;
  RawRecord raw;
  std::string text;
  for (; file_ < sources_.size(); ++file_, record_ = 0) {
    const SourceFile& source = sources_[file_];
    if (!reader_) reader_ = open_records(files_, source, options_.read);
    while (reader_->next(raw)) {
      ++record_;
      const std::size_t examples = report_.bad_examples.size();
      const bool kept = decode_record(source, options_.read, raw, text, report_);
      if (report_.bad_examples.size() > examples && options_.on_bad_record)
        options_.on_bad_record(report_.bad_examples.back());
      if (!kept) continue;
      encoder_.encode(text, tokens_);
      if (tokens_.empty()) continue;
      for (const std::int32_t token : tokens_) LODE_ASSERT(token >= 0 && token < encoder_.vocab_size);
      if (encoder_.eos_id) tokens_.push_back(*encoder_.eos_id);
      ++documents_;
      return true;
    }
    reader_.reset();
  }
  return false;
}

void StreamLoader::begin_pass() {
  reader_.reset();
  file_ = 0;
  record_ = documents_ = 0;
  any_block_ = false;
  ++epoch_;
}

// Reads no further than the block needs, so that between two blocks only the rest of one document is held.
StreamLoader::Block StreamLoader::next_block() {
  const auto wanted = static_cast<std::size_t>(options_.cutoff_len);
  Block block;
  while (block.tokens.size() < wanted) {
    if (used_ == tokens_.size() && !read_document()) {
      const bool last = block.tokens.size() >= 2;
      if (!last && !any_block_) {
        fail(ErrorKind::data,
             "the data set has nothing to train on: {} files (the first is {}) were read to the end, {} "
             "documents in all; {} empty and {} bad ones",
             sources_.size(), sources_.front().path, report_.documents, report_.empty, report_.num_bad());
      }
      begin_pass();
      if (last) break;
      block.tokens.clear();
      continue;
    }
    const std::size_t count = std::min(wanted - block.tokens.size(), tokens_.size() - used_);
    const auto from = tokens_.begin() + static_cast<std::ptrdiff_t>(used_);
    block.tokens.insert(block.tokens.end(), from, from + static_cast<std::ptrdiff_t>(count));
    used_ += count;
    if (block.tokens.size() == wanted) any_block_ = true;
  }
  block.id = next_id_++;
  return block;
}

Json StreamLoader::position() const {
  const bool within = used_ < tokens_.size();
  return Json::object({{"epoch", epoch_},
                       {"file", static_cast<std::int64_t>(file_)},
                       {"record", record_ - (within ? 1 : 0)},
                       {"token", static_cast<std::int64_t>(within ? used_ : 0)},
                       {"documents", documents_ - (within ? 1 : 0)},
                       {"next_sample", next_id_}});
}

void StreamLoader::seek(const Json& position) {
  const auto number = [&position](std::string_view key) {
    const std::int64_t value = position.at(key).as_int();
    if (value < 0) fail(ErrorKind::data, "the stream's position has a negative {}: {}", key, value);
    return value;
  };
  const std::int64_t record = number("record"), token = number("token");
  const auto file = static_cast<std::size_t>(number("file"));
  epoch_ = number("epoch");
  next_id_ = number("next_sample");
  documents_ = number("documents");
  reader_.reset();
  tokens_.clear();
  used_ = 0;
  file_ = file;
  record_ = 0;
  // A position is taken behind a block, which is one of its pass unless the pass begins there.
  any_block_ = file > 0 || record > 0 || token > 0;
  const auto fail_gone = [&] {
    fail(ErrorKind::data,
         "the stream's position (file {}, record {}, token {}) is not there{}: restore the data set, or "
         "begin a new run",
         file, record, token,
         file < sources_.size() ? format("; {} changed since the save", sources_[file].path) : "");
  };
  if (file > sources_.size() || (file == sources_.size() && (record > 0 || token > 0))) fail_gone();
  if (file == sources_.size() || record + token == 0) return;
  reader_ = open_records(files_, sources_[file], options_.read);
  RawRecord raw;
  for (; record_ < record; ++record_) {
    if (!reader_->next(raw)) fail_gone();
  }
  if (token == 0) return;
  const bool found = read_document() && file_ == file && record_ == record + 1;
  if (!found || static_cast<std::size_t>(token) >= tokens_.size()) fail_gone();
  used_ = static_cast<std::size_t>(token);
}

Step StreamLoader::next() {
  Step step;
  for (std::int64_t m = 0; m < options_.micro_batches_per_step; ++m) {
    std::vector<Block> blocks;
    std::vector<std::int32_t> lengths;
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < options_.rows_per_micro_batch; ++i) {
      blocks.push_back(next_block());
      lengths.push_back(static_cast<std::int32_t>(blocks.back().tokens.size()));
      ids.push_back(blocks.back().id);
    }
    add_micro_batch(
        step,
        make_batch(lengths, ids,
                   [&](std::size_t i, std::int32_t* out) { std::ranges::copy(blocks[i].tokens, out); }),
        options_.bytes_per_token);
  }
  step.epoch = static_cast<double>(epoch_);
  step.position = position();
  return step;
}

}  // namespace lode
