// A large file written past the system's cache: nothing of it fills memory that the run could use, and
// nothing is left to write when sync comes.
#pragma once

#include <memory>
#include <string>

#include "core/file.h"

namespace lode {

// Truncates an existing file. Nothing where the file system cannot do it; throws Error(data) when the file
// cannot be made at all. Two buffers: one is written by a thread of its own while the other is filled, so a
// failed write is thrown by the next call.
std::unique_ptr<OutputFile> create_direct(const std::string& path);
inline constexpr std::size_t kDirectBuffers = std::size_t{768} << 10;  // bytes, of each file

}  // namespace lode
