#include "data/rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/fail.h"
#include "core/rng.h"
#include "data/best_fit.h"
#include "data/digest.h"

namespace lode {
namespace {

struct Side {
  std::vector<Sample> samples;
  PackingReport report;
};

// How many of n are held out.
std::int64_t count_held_out(double val_size, std::int64_t n, std::string_view unit) {
  if (!(val_size >= 0)) fail(ErrorKind::usage, "val_size must be 0 or more, found {}", val_size);
  if (val_size == 0) return 0;
  if (val_size >= 1 && val_size != std::floor(val_size)) {
    fail(ErrorKind::usage, "val_size must be a share below 1 or a whole number of {}, found {}", unit,
         val_size);
  }
  const double wanted =
      val_size < 1 ? std::max(1.0, std::round(val_size * static_cast<double>(n))) : val_size;
  if (wanted >= static_cast<double>(n)) {
    fail(ErrorKind::usage,
         "val_size {} holds out {} of {} {} and leaves none to train on; choose a smaller one, split the "
         "text by a "
         "separator, pack in blocks, or name an evaluation data set",
         val_size, wanted, n, unit);
  }
  return static_cast<std::int64_t>(wanted);
}

// Documents with the smallest hashes of (seed, number): adding documents moves few others.
std::vector<bool> choose_documents(std::int64_t n, std::int64_t count, std::uint64_t seed) {
  std::vector<bool> chosen(static_cast<std::size_t>(n), false);
  if (count == 0) return chosen;
  const PhiloxKey key = make_key(seed, "held-out documents");
  std::vector<std::pair<std::uint64_t, std::int64_t>> ranks;
  ranks.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const auto number = static_cast<std::uint64_t>(i);
    const auto word =
        philox({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0}, key);
    ranks.emplace_back(std::uint64_t{word[0]} << 32 | word[1], i);
  }
  std::ranges::nth_element(ranks, ranks.begin() + count);
  for (std::int64_t i = 0; i < count; ++i) {
    chosen[static_cast<std::size_t>(ranks[static_cast<std::size_t>(i)].second)] = true;
  }
  return chosen;
}

// Adds one document's samples; `id` is the next free sample id.
void add_document(const PreparedData& data, std::int64_t document, const RowOptions& options,
                  std::int64_t& id, Side& side) {
  const std::int64_t begin = data.begin_of(document), length = data.length_of(document);
  const std::int64_t cutoff = options.cutoff_len;
  PackingReport& report = side.report;
  ++report.documents;
  report.longest = std::max(report.longest, length);
  const auto add = [&](std::int64_t at, std::int64_t size) {
    side.samples.push_back({begin + at, static_cast<std::int32_t>(size), id});
  };
  if (length < 2) {
    ++report.dropped["a single token, nothing to predict"];
  } else if (length <= cutoff) {
    add(0, length);
  } else if (options.too_long == TooLong::drop) {
    ++report.dropped["longer than cutoff_len"];
  } else if (options.too_long == TooLong::truncate) {
    add(0, cutoff);
    ++report.truncated;
    report.truncated_tokens += length - cutoff;
  } else {
    ++report.split;
    for (std::int64_t at = 0; at < length; at += cutoff, ++id) {
      if (length - at >= 2) add(at, std::min(cutoff, length - at));
    }
    return;
  }
  ++id;
}

std::int64_t used_documents(const PreparedData& data, const RowOptions& options) {
  const std::int64_t n = data.num_documents();
  return options.max_documents > 0 ? std::min(n, options.max_documents) : n;
}

void split_documents(const PreparedData& data, const RowOptions& options, double val_size, std::uint64_t seed,
                     Side& train, Side& held_out) {
  const std::int64_t n = used_documents(data, options);
  const std::vector<bool> chosen = choose_documents(n, count_held_out(val_size, n, "documents"), seed);
  std::int64_t id = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    add_document(data, i, options, id, chosen[static_cast<std::size_t>(i)] ? held_out : train);
  }
}

void split_blocks(const PreparedData& data, const RowOptions& options, double val_size, Side& train,
                  Side& held_out) {
  const std::int64_t documents = used_documents(data, options);
  const std::int64_t cutoff = options.cutoff_len;
  const std::int64_t tokens =
      documents == 0 ? 0 : data.begin_of(documents - 1) + data.length_of(documents - 1);
  const std::int64_t num_blocks = tokens / cutoff + (tokens % cutoff >= 2 ? 1 : 0);
  const std::int64_t num_train = num_blocks - count_held_out(val_size, num_blocks, "blocks");
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    const auto length = static_cast<std::int32_t>(std::min(cutoff, tokens - b * cutoff));
    (b < num_train ? train : held_out).samples.push_back({b * cutoff, length, b});
  }
  // A document on both sides of the cut counts where it begins.
  for (std::int64_t i = 0; i < documents; ++i) {
    PackingReport& report = (data.begin_of(i) < num_train * cutoff ? train : held_out).report;
    ++report.documents;
    report.longest = std::max(report.longest, data.length_of(i));
  }
}

}  // namespace

Json PackingReport::to_json() const {
  Json reasons = Json::object();
  for (const auto& [reason, count] : dropped) reasons[reason] = count;
  return Json::object({{"documents", documents},
                       {"samples", samples},
                       {"rows", rows},
                       {"tokens", tokens},
                       {"targets", targets},
                       {"truncated", truncated},
                       {"truncated_tokens", truncated_tokens},
                       {"split", split},
                       {"dropped", std::move(reasons)},
                       {"longest", longest},
                       {"density", density},
                       {"tokens_per_byte", tokens_per_byte}});
}

std::vector<std::string> PackingReport::lines(const std::string& name) const {
  std::vector<std::string> lines;
  lines.push_back(
      format("{}: {} documents, {} tokens in {} rows, {:.1f} % full; longest document {} tokens; {:.3f} "
             "tokens per byte",
             name, documents, tokens, rows, density * 100, longest, tokens_per_byte));
  if (truncated > 0) {
    lines.push_back(format("{}: {} documents truncated to cutoff_len, {} tokens cut off", name, truncated,
                           truncated_tokens));
  }
  if (split > 0) lines.push_back(format("{}: {} documents split at cutoff_len", name, split));
  for (const auto& [reason, count] : dropped) {
    lines.push_back(format("{}: {} documents dropped: {}", name, count, reason));
  }
  return lines;
}

Rows::Rows(std::shared_ptr<const PreparedData> data, std::vector<Sample> samples, const RowOptions& options,
           PackingReport report)
    : data_(std::move(data)),
      samples_(std::move(samples)),
      bytes_per_token_(options.bytes_per_token),
      report_(std::move(report)) {
  if (options.packing == Packing::best_fit) {
    pack(options.cutoff_len);
  } else {
    for (std::size_t i = 0; i <= samples_.size(); ++i) begins_.push_back(static_cast<std::int64_t>(i));
  }
  report_.rows = size();
  report_.samples = static_cast<std::int64_t>(samples_.size());
  for (const Sample& sample : samples_) report_.tokens += sample.length;
  report_.targets = report_.tokens - report_.samples;
  const double space = static_cast<double>(size()) * options.cutoff_len;
  report_.density = space > 0 ? static_cast<double>(report_.tokens) / space : 0;
  const auto text_bytes = static_cast<double>(data_->report().read.text_bytes);
  report_.tokens_per_byte = text_bytes > 0 ? static_cast<double>(data_->num_tokens()) / text_bytes : 0;
}

void Rows::pack(std::int32_t capacity) {
  std::vector<std::int32_t> lengths;
  for (const Sample& sample : samples_) lengths.push_back(sample.length);
  Bins bins = pack_best_fit(lengths, capacity);
  std::vector<Sample> ordered;
  ordered.reserve(samples_.size());
  for (const std::int64_t item : bins.items) ordered.push_back(samples_[static_cast<std::size_t>(item)]);
  samples_ = std::move(ordered);
  begins_ = std::move(bins.begins);
}

std::span<const Sample> Rows::samples(std::int64_t row) const {
  LODE_ASSERT(row >= 0 && row < size());
  const std::int64_t begin = begins_[static_cast<std::size_t>(row)],
                     end = begins_[static_cast<std::size_t>(row) + 1];
  return std::span(samples_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

std::int64_t Rows::num_tokens(std::int64_t row) const {
  std::int64_t tokens = 0;
  for (const Sample& sample : samples(row)) tokens += sample.length;
  return tokens;
}

std::string Rows::fingerprint() const {
  Digest digest;
  digest.field(data_->fingerprint());
  digest.bytes(std::as_bytes(std::span(begins_)));
  for (const Sample& sample : samples_) digest.field(sample.begin).field(sample.length).field(sample.id);
  return digest.hex();
}

RowSets make_rows(std::shared_ptr<const PreparedData> data, const RowOptions& options, double val_size,
                  std::uint64_t seed) {
  if (options.cutoff_len < 2) {
    fail(ErrorKind::usage, "cutoff_len must be at least 2 (a token and the one it predicts), found {}",
         options.cutoff_len);
  }
  Side train, held_out;
  if (options.packing == Packing::blocks) {
    split_blocks(*data, options, val_size, train, held_out);
  } else {
    split_documents(*data, options, val_size, seed, train, held_out);
  }
  if (train.samples.empty()) {
    std::string reasons;
    for (const auto& [reason, count] : train.report.dropped)
      reasons += format("; {} documents: {}", count, reason);
    fail(ErrorKind::data, "the data set has no sample to train on: {} documents, {} tokens{}",
         data->num_documents(), data->num_tokens(), reasons);
  }
  if (val_size > 0 && held_out.samples.empty()) {
    fail(ErrorKind::usage,
         "val_size {} holds out only documents without anything to predict; choose a larger one", val_size);
  }
  return {Rows(data, std::move(train.samples), options, std::move(train.report)),
          Rows(data, std::move(held_out.samples), options, std::move(held_out.report))};
}

}  // namespace lode
