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

constexpr std::size_t kMaxExamples = 5;

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

// How many of the tokens [begin + 1, begin + length) count as targets.
std::int64_t count_targets(const PreparedData& data, std::int64_t begin, std::int64_t length) {
  if (!data.has_weights()) return length - 1;
  std::vector<float> weights(static_cast<std::size_t>(length));
  data.copy_weights(begin, length, weights.data());
  return length - 1 - std::count(weights.begin() + 1, weights.end(), 0.0f);
}

// Adds one document's samples; `id` is the next free sample id.
void add_document(const PreparedData& data, std::int64_t document, const RowOptions& options,
                  std::int64_t& id, Side& side) {
  const std::int64_t begin = data.begin_of(document), length = data.length_of(document);
  const std::int64_t cutoff = options.cutoff_len;
  PackingReport& report = side.report;
  ++report.documents;
  report.longest = std::max(report.longest, length);
  const auto drop = [&](const std::string& reason, std::int64_t at) {
    ++report.dropped[reason];
    // Of plain text only whole documents have a place worth naming.
    if (!data.has_weights() || report.dropped_examples.size() >= kMaxExamples) return;
    report.dropped_examples.push_back(format("{}: {}", data.origin_of(at), reason));
  };
  const std::int32_t set = data.set_of(document);
  const auto add = [&](std::int64_t at, std::int64_t size) {
    side.samples.push_back({begin + at, static_cast<std::int32_t>(size), id, set, document});
  };
  if (length < 2) {
    drop("a single token, nothing to predict", document);
  } else if (length <= cutoff) {
    add(0, length);
  } else if (options.too_long == TooLong::drop) {
    drop("longer than cutoff_len", document);
  } else if (options.too_long == TooLong::truncate) {
    if (count_targets(data, begin, cutoff) == 0) {
      drop("no target within cutoff_len", document);
    } else {
      add(0, cutoff);
      ++report.truncated;
      report.truncated_tokens += length - cutoff;
    }
  } else {
    ++report.split;
    for (std::int64_t at = 0; at < length; at += cutoff, ++id) {
      if (length - at >= 2) add(at, std::min(cutoff, length - at));
    }
    return;
  }
  ++id;
}

// The documents in use of each data set.
std::vector<std::vector<std::int64_t>> used_documents(const PreparedData& data, const RowOptions& options) {
  std::vector<std::vector<std::int64_t>> sets;
  for (std::int32_t set = 0; set < data.num_sets(); ++set) {
    const std::int64_t begin = data.set_begin(set);
    std::int64_t n = data.set_end(set) - begin;
    if (options.max_documents > 0) n = std::min(n, options.max_documents);
    const auto i = static_cast<std::size_t>(set);
    if (i < options.set_limits.size() && options.set_limits[i] > 0) n = std::min(n, options.set_limits[i]);
    auto& documents = sets.emplace_back();
    for (std::int64_t k = 0; k < n; ++k) documents.push_back(begin + k);
  }
  return sets;
}

void split_documents(const PreparedData& data, const RowOptions& options, double val_size, std::uint64_t seed,
                     Side& train, Side& held_out) {
  auto sets = used_documents(data, options);
  std::int64_t n = 0;
  for (const auto& set : sets) n += static_cast<std::int64_t>(set.size());
  const std::vector<bool> chosen = choose_documents(n, count_held_out(val_size, n, "documents"), seed);
  std::int64_t id = 0;
  std::size_t i = 0;
  if (options.mix.mixing == Mixing::concat) {
    for (const auto& set : sets) {
      for (const std::int64_t document : set) {
        add_document(data, document, options, id, chosen[i++] ? held_out : train);
      }
    }
    return;
  }
  for (auto& set : sets) {
    std::vector<std::int64_t> kept;
    for (const std::int64_t document : set) {
      if (chosen[i++]) {
        add_document(data, document, options, id, held_out);
      } else {
        kept.push_back(document);
      }
    }
    set = std::move(kept);
  }
  for (const std::int64_t document : mix_documents(sets, options.mix, seed)) {
    add_document(data, document, options, id, train);
  }
}

void split_blocks(const PreparedData& data, const RowOptions& options, double val_size, Side& train,
                  Side& held_out) {
  const std::int64_t documents = options.max_documents > 0
                                     ? std::min(data.num_documents(), options.max_documents)
                                     : data.num_documents();
  const std::int64_t cutoff = options.cutoff_len;
  const std::int64_t tokens =
      documents == 0 ? 0 : data.begin_of(documents - 1) + data.length_of(documents - 1);
  const std::int64_t num_blocks = tokens / cutoff + (tokens % cutoff >= 2 ? 1 : 0);
  const std::int64_t num_train = num_blocks - count_held_out(val_size, num_blocks, "blocks");
  std::int64_t document = 0;
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    const auto length = static_cast<std::int32_t>(std::min(cutoff, tokens - b * cutoff));
    while (data.begin_of(document) + data.length_of(document) <= b * cutoff) ++document;
    (b < num_train ? train : held_out).samples.push_back({b * cutoff, length, b, 0, document});
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
  Json json = Json::object({{"documents", documents},
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
  for (const std::string& example : dropped_examples) json["dropped_examples"].push_back(example);
  return json;
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
  for (const std::string& example : dropped_examples) lines.push_back("  " + example);
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
  for (const Sample& sample : samples_) report_.targets += count_targets(*data_, sample.begin, sample.length);
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
  if (data->has_weights() && (options.packing == Packing::blocks || options.too_long == TooLong::split)) {
    fail(ErrorKind::usage,
         "chats cannot be cut: choose packing_strategy best_fit, or packing: false, and truncation_strategy "
         "truncate or drop");
  }
  if (options.packing == Packing::blocks && options.mix.mixing != Mixing::concat) {
    fail(ErrorKind::usage,
         "mix_strategy interleaves documents and packing_strategy blocks does not keep them; "
         "choose best_fit or concat");
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
    if (!train.report.dropped_examples.empty())
      reasons += format(" ({})", train.report.dropped_examples.front());
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
