#include "data/inspect.h"

#include <algorithm>

#include "core/fail.h"

namespace lode {
namespace {

constexpr std::string_view kReset = "\x1b[0m", kTrained = "\x1b[32m", kWeighted = "\x1b[33m",
                           kMasked = "\x1b[90m";

void add_lengths(const PreparedData& data, DataSummary& summary) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < data.num_documents(); ++i) lengths.push_back(data.length_of(i));
  std::ranges::sort(lengths);
  summary.documents = data.num_documents();
  if (lengths.empty()) return;
  const auto quantile = [&](double q) {
    return lengths[static_cast<std::size_t>(q * static_cast<double>(lengths.size() - 1) + 0.5)];
  };
  summary.shortest = lengths.front();
  summary.median = quantile(0.5);
  summary.p95 = quantile(0.95);
  summary.longest = lengths.back();
  for (std::int64_t end = 64;; end *= 2) {
    const auto last = std::ranges::lower_bound(lengths, end);
    std::int64_t count = last - lengths.begin();
    for (const std::int64_t before : summary.histogram) count -= before;
    summary.histogram.push_back(count);
    summary.histogram_ends.push_back(end);
    if (last == lengths.end()) break;
  }
}

// Tokens and weights of one sample.
struct SampleTokens {
  SampleTokens(const PreparedData& data, const Sample& sample)
      : tokens(static_cast<std::size_t>(sample.length)), weights(tokens.size()) {
    data.copy(sample.begin, sample.length, tokens.data());
    data.copy_weights(sample.begin, sample.length, weights.data());
    weights[0] = 0;
  }
  std::vector<std::int32_t> tokens;
  std::vector<float> weights;
};

std::string visible(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\xe2\x8f\x8e\n";  // U+23CE
    } else if (byte < 0x20 && c != '\t') {
      out += format("\\x{:02x}", static_cast<int>(byte));
    } else if (byte == 0x7f) {
      out += "\\x7f";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

DataSummary summarize(const Rows& rows, const Tokenizer& tokenizer) {
  const PreparedData& data = rows.data();
  DataSummary summary;
  add_lengths(data, summary);
  for (std::int32_t set = 0; set < data.num_sets(); ++set) summary.sets.push_back({data.set_name(set)});
  const std::vector<std::int32_t> ends = tokenizer.stop_ids();
  std::map<std::int32_t, std::int64_t> special;
  std::int64_t num_ended = 0;
  for (const Sample& sample : rows.all_samples()) {
    const SampleTokens own(data, sample);
    std::int32_t last_target = -1;
    std::int64_t targets = 0;
    for (std::size_t i = 0; i < own.tokens.size(); ++i) {
      if (tokenizer.is_special(own.tokens[i])) ++special[own.tokens[i]];
      if (own.weights[i] == 0) continue;
      last_target = own.tokens[i];
      ++targets;
    }
    num_ended += std::ranges::binary_search(ends, last_target);
    SetSummary& set = summary.sets[static_cast<std::size_t>(sample.set)];
    ++set.samples;
    set.tokens += sample.length;
    set.targets += targets;
    summary.tokens += sample.length;
    summary.targets += targets;
  }
  summary.samples = static_cast<std::int64_t>(rows.all_samples().size());
  summary.rows = rows.size();
  summary.truncated = rows.report().truncated;
  if (summary.tokens > 0) {
    summary.share_trained = static_cast<double>(summary.targets) / static_cast<double>(summary.tokens);
    summary.share_ends = static_cast<double>(num_ended) / static_cast<double>(summary.samples);
  }
  const ReadReport& read = data.report().read;
  for (const auto* reasons : {&read.bad, &read.dropped, &rows.report().dropped}) {
    for (const auto& [reason, count] : *reasons) summary.dropped[reason] += count;
  }
  if (read.empty > 0) summary.dropped["empty"] += read.empty;
  for (const auto* examples : {&read.bad_examples, &read.dropped_examples, &rows.report().dropped_examples}) {
    summary.dropped_examples.insert(summary.dropped_examples.end(), examples->begin(), examples->end());
  }
  summary.odd = read.odd;
  summary.odd_examples = read.odd_examples;
  for (const auto& [id, count] : special) summary.special_tokens.push_back({id, tokenizer.token(id), count});
  return summary;
}

Json DataSummary::to_json() const {
  Json counts = Json::array(), ends = Json::array(), reasons = Json::object(), examples = Json::array(),
       strange = Json::object(), strange_examples = Json::array(), special = Json::array(),
       parts = Json::array(), unlearned = Json::array();
  for (const std::int64_t count : histogram) counts.push_back(count);
  for (const std::int64_t end : histogram_ends) ends.push_back(end);
  for (const auto& [reason, count] : dropped) reasons[reason] = count;
  for (const std::string& example : dropped_examples) examples.push_back(example);
  for (const auto& [what, count] : odd) strange[what] = count;
  for (const std::string& example : odd_examples) strange_examples.push_back(example);
  for (const SpecialTokenCount& token : special_tokens) {
    special.push_back(Json::object({{"id", token.id}, {"text", token.text}, {"count", token.count}}));
  }
  for (const std::int32_t id : untrained) unlearned.push_back(id);
  for (const SetSummary& set : sets) {
    parts.push_back(Json::object(
        {{"name", set.name}, {"samples", set.samples}, {"tokens", set.tokens}, {"targets", set.targets}}));
  }
  return Json::object({{"documents", documents},
                       {"shortest", shortest},
                       {"median", median},
                       {"p95", p95},
                       {"longest", longest},
                       {"histogram", std::move(counts)},
                       {"histogram_ends", std::move(ends)},
                       {"samples", samples},
                       {"rows", rows},
                       {"tokens", tokens},
                       {"targets", targets},
                       {"truncated", truncated},
                       {"share_trained", share_trained},
                       {"share_ends", share_ends},
                       {"sets", std::move(parts)},
                       {"dropped", std::move(reasons)},
                       {"dropped_examples", std::move(examples)},
                       {"odd", std::move(strange)},
                       {"odd_examples", std::move(strange_examples)},
                       {"special_tokens", std::move(special)},
                       {"untrained_tokens", std::move(unlearned)}});
}

std::vector<std::string> DataSummary::lines() const {
  std::vector<std::string> lines;
  lines.push_back(format("{} documents; tokens: shortest {}, median {}, 95 % up to {}, longest {}", documents,
                         shortest, median, p95, longest));
  const std::int64_t most = histogram.empty() ? 0 : std::ranges::max(histogram);
  for (std::size_t i = 0; i < histogram.size(); ++i) {
    const std::int64_t width = most > 0 ? (histogram[i] * 40 + most - 1) / most : 0;
    lines.push_back(format("  {:>7} to {:>7}  {:>8}  {}", i == 0 ? 0 : histogram_ends[i - 1],
                           histogram_ends[i] - 1, histogram[i],
                           std::string(static_cast<std::size_t>(width), '#')));
  }
  lines.push_back(format("{} samples in {} rows; {} tokens, {} of them trained ({:.1f} %); {} truncated",
                         samples, rows, tokens, targets, share_trained * 100, truncated));
  lines.push_back(format("{:.1f} % of the samples end with a trained end token", share_ends * 100));
  if (sets.size() > 1) {
    for (const SetSummary& set : sets) {
      lines.push_back(
          format("  {}: {} samples, {} tokens, {} trained", set.name, set.samples, set.tokens, set.targets));
    }
  }
  for (const auto& [reason, count] : dropped) lines.push_back(format("{} rows dropped: {}", count, reason));
  for (const std::string& example : dropped_examples) lines.push_back("  " + example);
  for (const auto& [what, count] : odd) lines.push_back(format("{} rows kept with {}", count, what));
  for (const std::string& example : odd_examples) lines.push_back("  " + example);
  for (const SpecialTokenCount& token : special_tokens) {
    const bool unlearned = std::ranges::find(untrained, token.id) != untrained.end();
    lines.push_back(format("special token {} ({}): {} times{}", visible(token.text), token.id, token.count,
                           unlearned ? "; the base never trained its embedding: full or additional_target "
                                       "[embed_tokens, lm_head] would"
                                     : ""));
  }
  return lines;
}

std::vector<InspectedSample> inspect_samples(const Rows& rows, const Tokenizer& tokenizer,
                                             std::int64_t count) {
  std::vector<Sample> samples(rows.all_samples().begin(), rows.all_samples().end());
  std::ranges::sort(samples, {}, &Sample::id);
  samples.resize(std::min(samples.size(), static_cast<std::size_t>(std::max<std::int64_t>(count, 0))));
  std::vector<InspectedSample> inspected;
  for (const Sample& sample : samples) {
    const SampleTokens own(rows.data(), sample);
    InspectedSample& out = inspected.emplace_back();
    out.origin = rows.data().origin_of(sample.document);
    out.set = rows.data().set_name(sample.set);
    out.length = sample.length;
    StreamDecoder decoder(tokenizer);
    for (std::size_t i = 0; i < own.tokens.size(); ++i) {
      out.tokens.push_back({own.tokens[i], decoder.push(own.tokens[i]), own.weights[i]});
      out.targets += own.weights[i] != 0;
    }
    if (!out.tokens.empty()) out.tokens.back().text += decoder.finish();
  }
  return inspected;
}

std::string render_sample(const InspectedSample& sample, bool colour) {
  std::string out = format("{}{}{}: {} tokens, {} trained\n", sample.origin, sample.set.empty() ? "" : " of ",
                           sample.set, sample.length, sample.targets);
  std::string_view current;
  bool trained = false;
  for (const InspectedToken& token : sample.tokens) {
    if (colour) {
      const std::string_view wanted = token.weight == 0 ? kMasked : token.weight == 1 ? kTrained : kWeighted;
      if (wanted != current) out += wanted;
      current = wanted;
    } else if (trained != (token.weight != 0)) {
      trained = !trained;
      out += trained ? "\xc2\xab" : "\xc2\xbb";  // U+00AB, U+00BB
    }
    out += visible(token.text);
  }
  if (colour) out += kReset;
  if (trained) out += "\xc2\xbb";
  return out + "\n";
}

}  // namespace lode
