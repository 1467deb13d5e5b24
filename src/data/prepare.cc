#include "data/prepare.h"

#include <chrono>

#include "core/fail.h"
#include "data/content.h"
#include "data/digest.h"
#include "data/encode.h"

namespace lode {
namespace {

constexpr std::int64_t kFormatVersion = 1;  // of readers and shards: raised when either gives other contents
constexpr std::int64_t kShardVersion = 2;   // of the files alone: raised when older ones cannot be read

// Files prepared together: one large file, or small ones in a row.
struct Unit {
  std::size_t begin = 0, end = 0;  // in the list of sources
};

std::vector<Unit> make_units(const std::vector<FileContent>& contents, std::int64_t shard_bytes) {
  std::vector<Unit> units;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    if (units.empty() || bytes + contents[i].stamp.size > shard_bytes) {
      units.push_back({i, i});
      bytes = 0;
    }
    units.back().end = i + 1;
    bytes += contents[i].stamp.size;
  }
  return units;
}

// Identifies the tokens of a stretch of sources.
void add_identity(Digest& digest, const std::vector<SourceFile>& sources,
                  const std::vector<FileContent>& contents, Unit range, const TextEncoder& encoder,
                  const ReadOptions& read) {
  digest.field(kFormatVersion).field(encoder.fingerprint).field(encoder.vocab_size);
  digest.field(encoder.eos_id ? std::int64_t{*encoder.eos_id} : -1);
  digest.field(read.text_column).field(read.separator);
  digest.field(static_cast<std::int64_t>(read.max_record_bytes));
  digest.field(static_cast<std::int64_t>(read.max_document_bytes));
  for (std::size_t i = range.begin; i < range.end; ++i) {
    digest.field(contents[i].hash).field(static_cast<std::int64_t>(sources[i].format));
    digest.field(static_cast<std::int64_t>(sources[i].compression));
  }
}

// The records of a unit's files, one after the other; those of shards that are already there are passed over
// when something behind them is read.
class UnitReader {
 public:
  UnitReader(FileSystem& files, std::span<const SourceFile> sources, const ReadOptions& options)
      : files_(files), sources_(sources), options_(options) {}

  void pass_over(std::int64_t count) { passed_ += count; }
  bool more() {
    while (passed_ > 0) {
      --passed_;
      if (!ahead_ && !read_next()) fail_short();
      ahead_ = false;
    }
    return ahead_ || read_next();
  }
  PendingRecord take() {
    ahead_ = false;
    return std::move(next_);
  }

 private:
  bool read_next() {
    for (; at_ < sources_.size(); ++at_) {
      if (!reader_) reader_ = open_records(files_, sources_[at_], options_);
      next_.source = &sources_[at_];
      next_.file = static_cast<std::uint32_t>(at_);
      if (reader_->next(next_.raw)) return ahead_ = true;
      reader_.reset();
    }
    return false;
  }
  [[noreturn]] void fail_short() const {
    fail(ErrorKind::data, "{}: changed while it was being read; run again when it is complete",
         sources_[0].path);
  }

  FileSystem& files_;
  std::span<const SourceFile> sources_;
  const ReadOptions& options_;
  std::unique_ptr<RecordReader> reader_;
  std::size_t at_ = 0;
  std::int64_t passed_ = 0;
  PendingRecord next_;
  bool ahead_ = false;
};

class Preparation {
 public:
  Preparation(FileSystem& files, const std::vector<SourceFile>& sources, const TextEncoder& encoder,
              const PrepareOptions& options)
      : files_(files), sources_(sources), encoder_(encoder), options_(options) {}

  std::shared_ptr<const PreparedData> run();

 private:
  void remove_leftovers();
  void prepare_unit(Unit unit);
  std::shared_ptr<const Shard> open_shard(const std::string& path);
  void fill(PendingShard& shard, UnitReader& reader);
  void finish(std::vector<PendingShard>& group, Unit unit);
  void use(std::shared_ptr<const Shard> shard, Unit unit);

  FileSystem& files_;
  const std::vector<SourceFile>& sources_;
  const TextEncoder& encoder_;
  const PrepareOptions& options_;
  std::vector<FileContent> contents_;
  std::vector<std::shared_ptr<const Shard>> shards_;
  std::vector<PreparedData::Files> sources_of_;  // of each shard
  PrepareReport report_;
};

// A shard of an earlier preparation, or nothing.
std::shared_ptr<const Shard> Preparation::open_shard(const std::string& path) {
  if (!files_.exists(path)) return nullptr;
  try {
    return std::make_shared<const Shard>(files_, path, encoder_.vocab_size);
  } catch (const Error& error) {
    report_.notes.push_back(format("{}; made again", error.what()));
    return nullptr;
  }
}

void Preparation::use(std::shared_ptr<const Shard> shard, Unit unit) {
  const ReadReport& read = shard->report();
  if (options_.read.bad_records == BadRecords::fail && read.num_bad() > 0) {
    fail(ErrorKind::data, "{}; correct the record or choose to skip bad records",
         read.bad_examples.empty() ? "a record is bad" : read.bad_examples.front());
  }
  report_.read.add(read);
  auto paths = std::make_shared<std::vector<std::string>>();
  for (std::size_t i = unit.begin; i < unit.end; ++i) paths->push_back(sources_[i].path);
  for (const Origin& origin : shard->origins()) {
    if (origin.file >= paths->size())
      fail(ErrorKind::data, "{}: damaged cache file: no such source", paths->front());
  }
  sources_of_.push_back(std::move(paths));
  shards_.push_back(std::move(shard));
}

void Preparation::fill(PendingShard& shard, UnitReader& reader) {
  while (shard.raw_bytes < options_.shard_bytes && reader.more()) {
    shard.records.push_back(reader.take());
    shard.raw_bytes += static_cast<std::int64_t>(shard.records.back().raw.text.size());
  }
  shard.contents.num_records = static_cast<std::int64_t>(shard.records.size());
  shard.contents.last = !reader.more();
}

void Preparation::finish(std::vector<PendingShard>& group, Unit unit) {
  make_shards(files_, group, encoder_, options_);
  for (std::size_t i = unit.begin; i < unit.end; ++i) {
    if (stamp_of(sources_[i].path) == contents_[i].stamp) continue;
    for (const PendingShard& shard : group) files_.remove(shard.path);
    fail(ErrorKind::data, "{}: changed while it was being read; run again when it is complete",
         sources_[i].path);
  }
  for (const PendingShard& shard : group) {
    use(std::make_shared<const Shard>(files_, shard.path, encoder_.vocab_size), unit);
    ++report_.shards_made;
  }
  group.clear();
  if (options_.progress) options_.progress(report_.read.text_bytes);
}

// What killed preparations left half written. A living one needs moments from creating such a file to
// renaming it.
void Preparation::remove_leftovers() {
  constexpr std::int64_t kHourNs = 3'600'000'000'000;
  const auto now = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const std::string& name : files_.list(options_.cache)) {
    if (name.find(".shard.tmp-") == std::string::npos) continue;
    const std::string path = join_path(options_.cache, name);
    try {
      if (now - stamp_of(path).modified_ns > kHourNs) files_.remove(path);
    } catch (const Error&) {  // another process was faster
    }
  }
}

void Preparation::prepare_unit(Unit unit) {
  Digest digest;
  digest.field(kShardVersion).field(options_.shard_bytes);
  add_identity(digest, sources_, contents_, unit, encoder_, options_.read);
  const std::string key = digest.hex();
  UnitReader reader(files_, std::span(sources_).subspan(unit.begin, unit.end - unit.begin), options_.read);
  std::vector<PendingShard> group;
  std::int64_t group_bytes = 0;
  bool last = false;
  for (int k = 0; !last; ++k) {
    const std::string path = join_path(options_.cache, format("{}-{:05}.shard", key, k));
    if (std::shared_ptr<const Shard> shard = open_shard(path)) {
      if (!group.empty()) finish(group, unit);
      group_bytes = 0;
      reader.pass_over(shard->num_records());
      last = shard->last();
      use(std::move(shard), unit);
      ++report_.shards_reused;
      continue;
    }
    PendingShard& shard = group.emplace_back();
    shard.path = path;
    fill(shard, reader);
    last = shard.contents.last;
    group_bytes += shard.raw_bytes;
    if (last || group_bytes >= options_.shard_bytes * options_.threads) {
      finish(group, unit);
      group_bytes = 0;
    }
  }
}

std::shared_ptr<const PreparedData> Preparation::run() {
  const auto start = std::chrono::steady_clock::now();
  files_.make_directory(options_.cache);
  contents_ = hash_contents(files_, sources_, options_.cache, options_.threads);
  for (const Unit unit : make_units(contents_, options_.shard_bytes)) prepare_unit(unit);
  if (report_.shards_made > 0) remove_leftovers();
  if (report_.read.documents == 0) {
    fail(ErrorKind::data,
         "the data set is empty: {} files (the first is {}) hold no document; {} empty and {} bad ones{}",
         sources_.size(), sources_.front().path, report_.read.empty, report_.read.num_bad(),
         report_.read.dropped_text());
  }
  Digest digest;
  add_identity(digest, sources_, contents_, {0, sources_.size()}, encoder_, options_.read);
  report_.files = static_cast<std::int64_t>(sources_.size());
  report_.time_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::make_shared<const PreparedData>(std::move(shards_), std::move(sources_of_), digest.hex(),
                                              std::move(report_));
}

}  // namespace

std::shared_ptr<const PreparedData> prepare_data(FileSystem& files, const std::vector<SourceFile>& sources,
                                                 const TextEncoder& encoder, const PrepareOptions& options) {
  if (sources.empty()) fail(ErrorKind::data, "the data set is empty: it names no file");
  LODE_ASSERT((encoder.encode || encoder.encode_record) && encoder.vocab_size > 0 &&
              options.shard_bytes > 0 && options.threads > 0);
  return Preparation(files, sources, encoder, options).run();
}

}  // namespace lode
