#include "core/direct_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "core/background.h"
#include "core/fail.h"

namespace lode {
namespace {

constexpr std::size_t kBuffer = kDirectBuffers / 2;
constexpr std::size_t kBlock = 4096;  // what positions, sizes and addresses are multiples of

struct FreeBuffer {
  void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{kBlock}); }
};
using Buffer = std::unique_ptr<std::byte, FreeBuffer>;

class DirectOutput : public OutputFile {
 public:
  DirectOutput(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {
    for (Buffer& buffer : buffers_)
      buffer.reset(static_cast<std::byte*>(::operator new (kBuffer, std::align_val_t{kBlock})));
  }
  ~DirectOutput() override {
    try {
      wait();
    } catch (const Error&) {  // closing without close() proves nothing
    }
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  DirectOutput(const DirectOutput&) = delete;
  DirectOutput& operator=(const DirectOutput&) = delete;

  void write(std::span<const std::byte> data) override {
    while (!data.empty()) {
      const std::size_t n = std::min(data.size(), kBuffer - used_);
      std::memcpy(buffers_[0].get() + used_, data.data(), n);
      used_ += n;
      rest_written_ = false;
      data = data.subspan(n);
      if (used_ == kBuffer) write_buffer();
    }
  }
  void sync() override {
    write_rest();
    // After a failed fsync the system may have dropped the data: never tried again on this descriptor.
    if (::fsync(descriptor_) != 0) fail_file(path_, "sync to disk", errno);
  }
  void close() override {
    if (descriptor_ < 0) return;
    write_rest();
    const int descriptor = std::exchange(descriptor_, -1);
    if (::close(descriptor) != 0 && errno != EINTR) fail_file(path_, "close", errno);
  }

 private:
  void wait() {
    if (const Background::Handle job = std::exchange(writing_, nullptr)) background_.finish(job);
  }
  // The full buffer goes to the thread, the one that it has written comes back.
  void write_buffer() {
    wait();
    std::swap(buffers_[0], buffers_[1]);
    used_ = 0;
    const std::uint64_t at = std::exchange(position_, position_ + kBuffer);
    writing_ = background_.start([this, at] { write_at(at, {buffers_[1].get(), kBuffer}); });
  }
  // What is in the buffer stays there, as more may follow in its last block. Once is enough: after a sync
  // nothing may change that is not synced.
  void write_rest() {
    wait();
    if (used_ == 0 || rest_written_) return;
    const std::size_t whole = (used_ + kBlock - 1) / kBlock * kBlock;
    std::memset(buffers_[0].get() + used_, 0, whole - used_);
    write_at(position_, {buffers_[0].get(), whole});
    if (::ftruncate(descriptor_, static_cast<off_t>(position_ + used_)) != 0)
      fail_file(path_, "write", errno);
    rest_written_ = true;
  }
  void write_at(std::uint64_t position, std::span<const std::byte> data) {
    while (!data.empty()) {
      const ssize_t n = ::pwrite(descriptor_, data.data(), data.size(), static_cast<off_t>(position));
      if (n < 0 && errno == EINTR) continue;
      // A part of a block was written, or blocks are larger than thought: on through the cache.
      if (n < 0 && errno == EINVAL && leave_direct()) continue;
      if (n < 0) fail_file(path_, "write", errno);
      data = data.subspan(static_cast<std::size_t>(n));
      position += static_cast<std::uint64_t>(n);
    }
  }
  bool leave_direct() {
    const int flags = ::fcntl(descriptor_, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) != 0 && ::fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT) == 0;
  }

  std::string path_;
  int descriptor_;
  std::array<Buffer, 2> buffers_;  // the one that is filled, the one that is written
  std::size_t used_ = 0;           // of the first
  std::uint64_t position_ = 0;     // of the first in the file
  bool rest_written_ = false;      // what is in the first is in the file, too
  Background::Handle writing_;
  Background background_;
};

}  // namespace

std::unique_ptr<OutputFile> create_direct(const std::string& path) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_DIRECT, 0666);
    if (descriptor >= 0) return std::make_unique<DirectOutput>(path, descriptor);
    if (errno == EINVAL) return nullptr;
    if (errno != EINTR) fail_file(path, "open for writing", errno);
  }
}

}  // namespace lode
