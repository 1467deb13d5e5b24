// What a data set looks like to the trainer: figures, and samples with each token's weight.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "data/rows.h"
#include "text/tokenizer.h"

namespace lode {

struct SpecialTokenCount {
  std::int32_t id = 0;
  std::string text;
  std::int64_t count = 0;
};

struct SetSummary {
  std::string name;
  std::int64_t samples = 0, tokens = 0, targets = 0;
};

struct DataSummary {
  // Of all prepared documents, before cutoff_len, in tokens.
  std::int64_t documents = 0;
  std::int64_t shortest = 0, median = 0, p95 = 0, longest = 0;
  // histogram[i] counts the documents of histogram_ends[i - 1] to histogram_ends[i] - 1 tokens (from 0).
  std::vector<std::int64_t> histogram, histogram_ends;
  // Of the samples in rows.
  std::int64_t samples = 0, rows = 0, tokens = 0, targets = 0;
  std::int64_t truncated = 0;
  double share_trained = 0;      // targets / tokens
  double share_ends = 0;         // samples whose last target is one of the tokens that end generation
  std::vector<SetSummary> sets;  // of each data set
  std::map<std::string, std::int64_t> dropped;    // rows, by reason
  std::vector<std::string> dropped_examples;      // "file:line: reason"
  std::map<std::string, std::int64_t> odd;        // rows that are kept, by what is odd
  std::vector<std::string> odd_examples;          // "file:line: detail"
  std::vector<SpecialTokenCount> special_tokens;  // special tokens in the samples; ascending ids
  // Those of them whose embedding rows the base never trained; filled by who knows the base.
  std::vector<std::int32_t> untrained;

  Json to_json() const;
  std::vector<std::string> lines() const;  // for people
};

DataSummary summarize(const Rows& rows, const Tokenizer& tokenizer);

struct InspectedToken {
  std::int32_t id = 0;
  std::string text;  // complete characters; the last token of a character has it
  float weight = 0;  // as a target; of a sample's first token 0
};

struct InspectedSample {
  std::string origin;  // "file:line"
  std::string set;     // name of its data set
  std::int64_t length = 0, targets = 0;
  std::vector<InspectedToken> tokens;
};

// The first `count` samples of the data set.
std::vector<InspectedSample> inspect_samples(const Rows& rows, const Tokenizer& tokenizer,
                                             std::int64_t count);

// Text for a terminal: trained tokens green (yellow when their weight is not 1), the others grey. Without
// colour, trained stretches stand between « and ». Control characters are made visible.
std::string render_sample(const InspectedSample& sample, bool colour);

}  // namespace lode
