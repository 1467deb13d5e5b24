// Turning raw records into shards, by several threads; used by prepare.cc.
#pragma once

#include <string>
#include <vector>

#include "data/prepare.h"

namespace lode {

struct PendingRecord {
  RawRecord raw;
  const SourceFile* source = nullptr;
  std::uint32_t file = 0;  // the source's place in its unit
};

struct PendingShard {
  std::string path;
  std::vector<PendingRecord> records;
  std::int64_t raw_bytes = 0;
  ShardContents contents;
};

// Decodes and tokenises the records and writes the shards. When a record of one of them is bad under `fail`,
// the shards before it are finished first, then the error is thrown.
void make_shards(FileSystem& files, std::vector<PendingShard>& shards, const TextEncoder& encoder,
                 const PrepareOptions& options);

}  // namespace lode
