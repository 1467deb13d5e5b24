// A file without a name for what does not fit in memory during a run: gone when the process ends, however it
// ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lode {

// Reads and writes at any offset; calls for different ranges may run at the same time. Failures are
// Error(data) with the folder, the operation and the reason.
class ScratchFile {
 public:
  virtual ~ScratchFile() = default;
  virtual void write(std::uint64_t offset, std::span<const std::byte> data) = 0;
  // All of it must have been written.
  virtual void read(std::uint64_t offset, std::span<std::byte> data) = 0;
  // Past the system's page cache. Then addresses, offsets and sizes must be multiples of kDirectUnit.
  virtual bool direct() const = 0;

  static constexpr std::size_t kDirectUnit = 4096;
};

// In an existing folder that can be written to. direct: asks for direct I/O; where the file system has none
// the file is an ordinary one. Throws Error(data).
std::unique_ptr<ScratchFile> open_scratch(const std::string& folder, bool direct);

}  // namespace lode
