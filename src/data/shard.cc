#include "data/shard.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/fail.h"
#include "data/digest.h"

namespace lode {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kMagic = 0x4452414853444f4c;  // "LODSHARD"
constexpr std::uint64_t kVersion = 2;

struct Header {
  std::uint64_t magic, version, token_bytes, num_documents, num_tokens, num_records, report_bytes, num_runs,
      last;
  std::uint64_t payload_hash, header_hash;  // of all behind the header; of the header up to here
};
static_assert(sizeof(Header) == 88);
static_assert(sizeof(Origin) == 8 && sizeof(WeightRun) == 8);

std::uint64_t hash_of(const Header& header) {
  return hash64(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_hash)));
}

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

template <class T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string make_payload(const ShardContents& contents, std::string_view report, bool narrow) {
  std::string out;
  out.reserve(contents.lengths.size() * 24 + contents.weights.size() * 8 + padded(report.size()) +
              contents.tokens.size() * (narrow ? 2 : 4));
  std::uint64_t end = 0;
  for (const std::int64_t length : contents.lengths) put(out, end += static_cast<std::uint64_t>(length));
  LODE_ASSERT(end == contents.tokens.size());
  for (const std::int64_t bytes : contents.text_bytes) put(out, static_cast<std::uint64_t>(bytes));
  for (const Origin& origin : contents.origins) put(out, origin);
  for (const WeightRun& run : contents.weights) put(out, run);
  out += report;
  out.append(padded(report.size()) - report.size(), ' ');
  for (const std::int32_t token : contents.tokens) {
    if (narrow) {
      put(out, static_cast<std::uint16_t>(token));
    } else {
      put(out, token);
    }
  }
  return out;
}

template <class T>
void widen(const std::byte* tokens, std::int64_t first, std::int64_t count, std::int32_t* out) {
  const T* from = reinterpret_cast<const T*>(tokens) + first;
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(from[i]);
}

template <class T>
bool all_below(const std::byte* tokens, std::int64_t count, std::int32_t bound) {
  const T* values = reinterpret_cast<const T*>(tokens);
  T largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
  return count == 0 || largest < static_cast<std::uint32_t>(bound);
}

}  // namespace

void write_shard(FileSystem& files, const std::string& path, const ShardContents& contents,
                 std::int32_t vocab_size) {
  LODE_ASSERT(contents.lengths.size() == contents.text_bytes.size() &&
              contents.lengths.size() == contents.origins.size());
  const bool narrow = vocab_size < 65536;
  const std::string report = contents.report.to_json().dump();
  const std::string payload = make_payload(contents, report, narrow);
  Header header{kMagic,
                kVersion,
                narrow ? 2u : 4u,
                contents.lengths.size(),
                contents.tokens.size(),
                static_cast<std::uint64_t>(contents.num_records),
                report.size(),
                contents.weights.size(),
                contents.last,
                hash64(std::as_bytes(std::span(payload))),
                0};
  header.header_hash = hash_of(header);

  static std::atomic<unsigned> counter{0};
  const std::string temporary = format("{}.tmp-{}-{}", path, ::getpid(), counter++);
  try {
    const std::unique_ptr<OutputFile> file = files.create(temporary);
    file->write(std::as_bytes(std::span(&header, 1)));
    file->write(payload);
    // Not synced: a shard that a power cut tore is found by its hash and made again.
    file->close();
    files.rename(temporary, path);
  } catch (const Error&) {
    try {
      files.remove(temporary);
    } catch (const Error&) {  // the first failure is the one to tell
    }
    throw;
  }
}

Shard::Shard(FileSystem& files, const std::string& path, std::int32_t vocab_size) : file_(files.map(path)) {
  check(path, vocab_size);
}

void Shard::check(const std::string& path, std::int32_t vocab_size) {
  const auto refuse = [&](std::string_view reason) {
    fail(ErrorKind::data, "{}: damaged cache file: {}", path, reason);
  };
  const std::span<const std::byte> bytes = file_->bytes();
  Header header;
  if (bytes.size() < sizeof(header)) refuse("shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic || header.version != kVersion) refuse("not of this kind or version");
  if (header.header_hash != hash_of(header)) refuse("the header's hash does not fit");
  if (header.token_bytes != (vocab_size < 65536 ? 2u : 4u)) refuse("another width of tokens");
  // Each count is bounded by the file's size, so that the sum cannot overflow.
  const std::uint64_t size = bytes.size() - sizeof(header);
  if (header.num_documents > size / 24 || header.num_runs > size / 8 ||
      header.num_tokens > size / header.token_bytes || header.report_bytes > size ||
      header.num_records > std::numeric_limits<std::int64_t>::max() ||
      header.num_documents * 24 + header.num_runs * 8 + padded(header.report_bytes) +
              header.num_tokens * header.token_bytes !=
          size) {
    refuse("its size does not fit its counts");
  }
  const std::span<const std::byte> payload = bytes.subspan(sizeof(header));
  if (hash64(payload) != header.payload_hash) refuse("the hash of its contents does not fit");

  num_documents_ = static_cast<std::int64_t>(header.num_documents);
  num_tokens_ = static_cast<std::int64_t>(header.num_tokens);
  num_records_ = static_cast<std::int64_t>(header.num_records);
  num_runs_ = static_cast<std::int64_t>(header.num_runs);
  token_bytes_ = static_cast<int>(header.token_bytes);
  last_ = header.last != 0;
  ends_ = reinterpret_cast<const std::uint64_t*>(payload.data());
  text_bytes_ = ends_ + num_documents_;
  origins_ = reinterpret_cast<const Origin*>(text_bytes_ + num_documents_);
  runs_ = reinterpret_cast<const WeightRun*>(origins_ + num_documents_);
  const char* report = reinterpret_cast<const char*>(runs_ + num_runs_);
  tokens_ = reinterpret_cast<const std::byte*>(report) + padded(header.report_bytes);
  std::uint64_t before = 0;
  for (const std::uint64_t end : ends()) {
    if (end <= before || end > header.num_tokens) refuse("document bounds out of order");
    before = end;
  }
  if (before != header.num_tokens) refuse("tokens outside of documents");
  std::uint64_t run_end = 0;
  for (const WeightRun& run : std::span(runs_, header.num_runs)) {
    if (run.end <= run_end || !std::isfinite(run.weight) || run.weight < 0) refuse("weights out of order");
    run_end = run.end;
  }
  if (num_runs_ > 0 && run_end != header.num_tokens) refuse("weights that do not cover the tokens");
  if (!(token_bytes_ == 2 ? all_below<std::uint16_t>(tokens_, num_tokens_, vocab_size)
                          : all_below<std::uint32_t>(tokens_, num_tokens_, vocab_size))) {
    refuse("a token beyond the vocabulary");
  }
  report_ = ReadReport::from_json(parse_json({report, header.report_bytes}, path));
}

void Shard::copy_weights(std::int64_t first, std::int64_t count, float* out) const {
  LODE_ASSERT(first >= 0 && count >= 0 && first <= num_tokens_ - count);
  if (num_runs_ == 0) {
    std::fill_n(out, count, 1.0f);
    return;
  }
  const std::span runs(runs_, static_cast<std::size_t>(num_runs_));
  auto run = std::ranges::upper_bound(runs, static_cast<std::uint32_t>(first), {}, &WeightRun::end);
  for (std::int64_t at = first; at < first + count; ++run) {
    const std::int64_t part = std::min<std::int64_t>(run->end, first + count) - at;
    out = std::fill_n(out, part, run->weight);
    at += part;
  }
}

void Shard::copy(std::int64_t first, std::int64_t count, std::int32_t* out) const {
  LODE_ASSERT(first >= 0 && count >= 0 && first <= num_tokens_ - count);
  if (token_bytes_ == 2) {
    widen<std::uint16_t>(tokens_, first, count, out);
  } else {
    widen<std::uint32_t>(tokens_, first, count, out);
  }
}

}  // namespace lode
