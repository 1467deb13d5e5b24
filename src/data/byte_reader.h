// A file's bytes in order, decompressed on the way in bounded memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/file.h"

namespace lode {

enum class Compression { none, gzip, zstd };

class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // Up to `count` bytes (count > 0); 0 at the end. Throws Error(data) naming the file when it is truncated or
  // damaged.
  virtual std::size_t read(char* out, std::size_t count) = 0;
};

// Gzip files may have several members, zstd files several frames.
std::unique_ptr<ByteReader> open_bytes(FileSystem& files, const std::string& path, Compression compression);

}  // namespace lode
