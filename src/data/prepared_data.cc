#include <algorithm>

#include "core/fail.h"
#include "data/digest.h"
#include "data/prepare.h"

namespace lode {

PreparedData::PreparedData(std::vector<std::shared_ptr<const Shard>> shards, std::vector<Files> sources,
                           std::string fingerprint, PrepareReport report)
    : shards_(std::move(shards)),
      sources_(std::move(sources)),
      fingerprint_(std::move(fingerprint)),
      report_(std::move(report)) {
  LODE_ASSERT(sources_.size() == shards_.size());
  std::int64_t begin = 0;
  for (const auto& shard : shards_) {
    shard_begins_.push_back(begin);
    shard_documents_.push_back(num_documents());
    for (const std::uint64_t end : shard->ends()) ends_.push_back(begin + static_cast<std::int64_t>(end));
    begin += shard->num_tokens();
    has_weights_ = has_weights_ || shard->has_weights();
  }
}

std::shared_ptr<const PreparedData> PreparedData::join(const std::vector<NamedData>& parts) {
  std::vector<std::shared_ptr<const Shard>> shards;
  std::vector<Files> sources;
  std::vector<Set> sets;
  PrepareReport report;
  Digest digest;
  std::int64_t documents = 0;
  for (const auto& [name, data] : parts) {
    LODE_ASSERT(data->num_sets() == 1);
    sets.push_back({name, documents});
    documents += data->num_documents();
    shards.insert(shards.end(), data->shards_.begin(), data->shards_.end());
    sources.insert(sources.end(), data->sources_.begin(), data->sources_.end());
    digest.field(data->fingerprint());
    report.read.add(data->report().read);
    report.files += data->report().files;
    report.shards_reused += data->report().shards_reused;
    report.shards_made += data->report().shards_made;
    report.notes.insert(report.notes.end(), data->report().notes.begin(), data->report().notes.end());
    report.time_seconds += data->report().time_seconds;
  }
  std::string fingerprint = parts.size() == 1 ? parts[0].data->fingerprint() : digest.hex();
  auto joined = std::make_shared<PreparedData>(std::move(shards), std::move(sources), std::move(fingerprint),
                                               std::move(report));
  joined->sets_ = std::move(sets);
  return joined;
}

std::size_t PreparedData::shard_at(std::int64_t token) const {
  return at(std::ranges::upper_bound(shard_begins_, token) - shard_begins_.begin()) - 1;
}

void PreparedData::copy(std::int64_t first, std::int64_t count, std::int32_t* out) const {
  LODE_ASSERT(first >= 0 && count >= 0 && first <= num_tokens() - count);
  for (std::size_t shard = shard_at(first); count > 0; ++shard) {
    const std::int64_t from = first - shard_begins_[shard];
    const std::int64_t part = std::min(count, shards_[shard]->num_tokens() - from);
    shards_[shard]->copy(from, part, out);
    first += part;
    out += part;
    count -= part;
  }
}

void PreparedData::copy_weights(std::int64_t first, std::int64_t count, float* out) const {
  LODE_ASSERT(first >= 0 && count >= 0 && first <= num_tokens() - count);
  for (std::size_t shard = shard_at(first); count > 0; ++shard) {
    const std::int64_t from = first - shard_begins_[shard];
    const std::int64_t part = std::min(count, shards_[shard]->num_tokens() - from);
    shards_[shard]->copy_weights(from, part, out);
    first += part;
    out += part;
    count -= part;
  }
}

std::string PreparedData::origin_of(std::int64_t document) const {
  LODE_ASSERT(document >= 0 && document < num_documents());
  const std::size_t shard =
      at(std::ranges::upper_bound(shard_documents_, document) - shard_documents_.begin()) - 1;
  const Origin& origin = shards_[shard]->origins()[at(document - shard_documents_[shard])];
  return format("{}:{}", (*sources_[shard])[origin.file], origin.line);
}

std::int32_t PreparedData::set_of(std::int64_t document) const {
  const auto set = std::ranges::upper_bound(sets_, document, {}, &Set::begin);
  return static_cast<std::int32_t>(set - sets_.begin()) - 1;
}

}  // namespace lode
