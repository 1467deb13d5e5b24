#include "core/scratch_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/fail.h"
#include "core/file.h"
#include "core/rehearsal.h"

namespace lode {
namespace {

constexpr std::size_t kLargestCall = std::size_t{1} << 30;

// -1 with errno set when the folder's file system has no such file.
int open_unnamed(const std::string& folder, int flags) {
  int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  std::string name = join_path(folder, "lode-scratch-XXXXXX");
  descriptor = ::mkostemp(name.data(), O_CLOEXEC | flags);
  if (descriptor >= 0) ::unlink(name.c_str());
  return descriptor;
}

class RealScratch : public ScratchFile {
 public:
  RealScratch(const std::string& folder, bool direct) : folder_(folder), direct_(direct) {
    descriptor_ = open_unnamed(folder, direct ? O_DIRECT : 0);
    if (descriptor_ < 0 && direct && errno == EINVAL) {
      direct_ = false;
      descriptor_ = open_unnamed(folder, 0);
    }
    if (descriptor_ < 0) fail_file(folder, "make a scratch file in this folder", errno);
  }
  ~RealScratch() override { ::close(descriptor_); }
  RealScratch(const RealScratch&) = delete;
  RealScratch& operator=(const RealScratch&) = delete;

  void write(std::uint64_t offset, std::span<const std::byte> data) override {
    while (!data.empty()) {
      const ssize_t n =
          ::pwrite(descriptor_, data.data(), std::min(data.size(), kLargestCall), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_file(folder_, format("write {} to a scratch file", format_bytes(data.size())), errno);
      data = data.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
  }
  void read(std::uint64_t offset, std::span<std::byte> data) override {
    while (!data.empty()) {
      const ssize_t n =
          ::pread(descriptor_, data.data(), std::min(data.size(), kLargestCall), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_file(folder_, "read a scratch file", errno);
      if (n == 0) fail(ErrorKind::internal, "{}: a scratch file ends before {}", folder_, offset);
      data = data.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
  }
  bool direct() const override { return direct_; }

 private:
  std::string folder_;
  int descriptor_ = -1;
  bool direct_;
};

// Of a rehearsal: what is written goes nowhere.
class Nowhere : public ScratchFile {
 public:
  explicit Nowhere(bool direct) : direct_(direct) {}
  void write(std::uint64_t, std::span<const std::byte>) override {}
  void read(std::uint64_t, std::span<std::byte>) override {}
  bool direct() const override { return direct_; }

 private:
  bool direct_;
};

}  // namespace

std::unique_ptr<ScratchFile> open_scratch(const std::string& folder, bool direct) {
  if (Rehearsal::active()) return std::make_unique<Nowhere>(direct);
  return std::make_unique<RealScratch>(folder, direct);
}

}  // namespace lode
