// Rows: what one unit of the batch size is made of, either one sample or several packed into `cutoff_len`
// tokens.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "data/mixture.h"
#include "data/prepare.h"

namespace lode {

enum class Packing {
  none,      // a row is one document
  best_fit,  // whole documents, several to a row, isolated from each other
  blocks,    // the stream of all documents cut every cutoff_len tokens; a block is one sample
};
enum class TooLong { truncate, split, drop };  // documents longer than cutoff_len

struct RowOptions {
  Packing packing = Packing::best_fit;
  std::int32_t cutoff_len = 2048;  // at least 2
  TooLong too_long = TooLong::truncate;
  std::int64_t max_documents = 0;        // of each data set only the first ones are used; 0: all
  std::vector<std::int64_t> set_limits;  // further limits of single data sets, 0: none; may be empty
  MixOptions mix;                        // of the training documents; no document is held out and trained on
  std::vector<std::int32_t>
      bytes_per_token;  // text bytes that each token stands for, 0 for special ones; may be empty
};

// A contiguous part of the prepared stream. The id numbers all samples of the data set, held out or not,
// before packing.
struct Sample {
  std::int64_t begin = 0;
  std::int32_t length = 0;  // at least 2: a single token has nothing to predict
  std::int64_t id = 0;
  std::int32_t set = 0;       // the data set it is from
  std::int64_t document = 0;  // of blocks: where it begins
};

struct PackingReport {
  std::int64_t documents = 0, samples = 0, rows = 0;
  std::int64_t tokens = 0;   // in rows
  std::int64_t targets = 0;  // tokens to predict: those that count
  std::int64_t truncated = 0, truncated_tokens = 0, split = 0;
  std::map<std::string, std::int64_t> dropped;  // documents, by reason
  std::vector<std::string> dropped_examples;    // the first few, "file:line: reason"
  std::int64_t longest = 0;                     // tokens of the longest document
  double density = 0;                           // tokens / (rows * cutoff_len)
  double tokens_per_byte = 0;                   // of the whole prepared data set

  Json to_json() const;
  std::vector<std::string> lines(const std::string& name) const;
};

class Rows {
 public:
  // Samples in order of id.
  Rows(std::shared_ptr<const PreparedData> data, std::vector<Sample> samples, const RowOptions& options,
       PackingReport report);

  std::int64_t size() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  std::span<const Sample> samples(std::int64_t row) const;
  std::int64_t num_tokens(std::int64_t row) const;
  std::span<const Sample> all_samples() const { return samples_; }  // in the order of rows
  const std::vector<std::int32_t>& bytes_per_token() const { return bytes_per_token_; }
  const PreparedData& data() const { return *data_; }
  const PackingReport& report() const { return report_; }
  // Of the prepared data, the packing and the split; equal ones mean equal rows.
  std::string fingerprint() const;

 private:
  void pack(std::int32_t capacity);

  std::shared_ptr<const PreparedData> data_;
  std::vector<Sample> samples_;       // in order of rows
  std::vector<std::int64_t> begins_;  // row r holds samples_[begins_[r] .. begins_[r + 1])
  std::vector<std::int32_t> bytes_per_token_;
  PackingReport report_;
};

struct RowSets {
  Rows train;
  Rows held_out;  // no rows when val_size is 0
};

// val_size below 1 is the share held out, from 1 up a number of documents (of blocks with Packing::blocks).
// Documents are chosen by seed; of blocks the last ones are taken, so that no text lies on both sides. Throws
// Error(usage) when nothing is left to train on and Error(data) when the data set has no sample with anything
// to predict.
RowSets make_rows(std::shared_ptr<const PreparedData> data, const RowOptions& options, double val_size = 0,
                  std::uint64_t seed = 0);

}  // namespace lode
