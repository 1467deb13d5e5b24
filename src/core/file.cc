#include "core/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "core/direct_output.h"
#include "core/fail.h"

namespace lode {

namespace fs = std::filesystem;

void fail_file(const std::string& path, std::string_view operation, int error_number) {
  fail(ErrorKind::data, "{}: cannot {}: {}", path, operation, std::generic_category().message(error_number));
}

namespace {

// The system writes at most 2 GiB a call.
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;

int open_file(const std::string& path, int flags, std::string_view operation) {
  if (path.find('\0') != std::string::npos) {
    fail(ErrorKind::data, "{}: cannot {}: a NUL byte follows in the path", path.c_str(), operation);
  }
  for (;;) {
    const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (descriptor >= 0) return descriptor;
    if (errno != EINTR) fail_file(path, operation, errno);
  }
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { ::close(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

class RealOutput : public OutputFile {
 public:
  RealOutput(const std::string& path, int flags)
      : path_(path), descriptor_(open_file(path, O_WRONLY | O_CREAT | flags, "open for writing")) {}
  ~RealOutput() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  RealOutput(const RealOutput&) = delete;
  RealOutput& operator=(const RealOutput&) = delete;

  void write(std::span<const std::byte> data) override {
    while (!data.empty()) {
      const ssize_t n = ::write(descriptor_, data.data(), std::min(data.size(), kLargestWrite));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_file(path_, "write", errno);
      data = data.subspan(static_cast<std::size_t>(n));
    }
  }
  void sync() override {
    // After a failed fsync the system may have dropped the data: never tried again on this descriptor.
    if (::fsync(descriptor_) != 0) fail_file(path_, "sync to disk", errno);
  }
  void close() override {
    if (descriptor_ < 0) return;
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (::close(descriptor) != 0 && errno != EINTR) fail_file(path_, "close", errno);
  }

 private:
  std::string path_;
  int descriptor_;
};

class RealMapped : public MappedFile {
 public:
  explicit RealMapped(const std::string& path) {
    const Descriptor file(open_file(path, O_RDONLY, "open"));
    struct stat status;
    if (::fstat(file.get(), &status) != 0) fail_file(path, "read its size", errno);
    if (!S_ISREG(status.st_mode)) fail(ErrorKind::data, "{}: not a regular file", path);
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ == 0) return;
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address == MAP_FAILED) fail_file(path, "map", errno);
    data_ = static_cast<const std::byte*>(address);
  }
  ~RealMapped() override {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  }
  RealMapped(const RealMapped&) = delete;
  RealMapped& operator=(const RealMapped&) = delete;
  std::span<const std::byte> bytes() const override { return {data_, size_}; }
  // Rounded outwards: pages beside the part were mapped with it, and those still wanted come again.
  void give_back(std::span<const std::byte> part) const override {
    if (part.empty()) return;
    const auto address = [](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); };
    const std::uintptr_t unit = kMappedTogether, end = address(part.data() + part.size()) + unit - 1,
                         first = std::max(address(part.data()) / unit * unit, address(data_)),
                         last = std::min(end / unit * unit, address(data_ + size_));
    // A refusal only costs memory.
    ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }

 private:
  // What the system maps around a page that is touched, by default; so aligned in memory, not in the file.
  static constexpr std::size_t kMappedTogether = std::size_t{64} << 10;

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class RealFiles : public FileSystem {
 public:
  bool exists(const std::string& path) override {
    std::error_code error;
    return fs::exists(path, error);
  }
  bool is_directory(const std::string& path) override {
    std::error_code error;
    return fs::is_directory(path, error);
  }
  std::uint64_t size(const std::string& path) override {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (error) fail_file(path, "read its size", error.value());
    return size;
  }
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    return std::make_unique<RealMapped>(path);
  }
  std::string read(const std::string& path) override {
    const Descriptor file(open_file(path, O_RDONLY, "open"));
    struct stat status;
    if (::fstat(file.get(), &status) != 0) fail_file(path, "read its size", errno);
    // Pipes and files of /proc have no size: read until the end whatever it says.
    std::string text(std::max<std::size_t>(static_cast<std::size_t>(status.st_size) + 1, 4096), '\0');
    std::size_t used = 0;
    for (;;) {
      if (used == text.size()) text.resize(text.size() * 2);
      const ssize_t n = ::read(file.get(), text.data() + used, std::min(text.size() - used, kLargestWrite));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_file(path, "read", errno);
      if (n == 0) break;
      used += static_cast<std::size_t>(n);
    }
    text.resize(used);
    return text;
  }
  std::vector<std::string> list(const std::string& directory) override {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) fail_file(directory, "list", error.value());
    std::ranges::sort(names);
    return names;
  }
  std::uint64_t free_space(const std::string& path) override {
    struct statvfs status;
    if (::statvfs(path.c_str(), &status) != 0) fail_file(path, "read the free space", errno);
    return std::uint64_t{status.f_bavail} * status.f_frsize;
  }

  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return std::make_unique<RealOutput>(path, O_TRUNC);
  }
  std::unique_ptr<OutputFile> create_large(const std::string& path) override {
    if (path.find('\0') == std::string::npos)
      if (auto direct = create_direct(path)) return direct;
    return create(path);
  }
  std::unique_ptr<OutputFile> append(const std::string& path) override {
    return std::make_unique<RealOutput>(path, O_APPEND);
  }
  void make_directory(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) fail_file(path, "make the folder", error.value());
  }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_file(from, format("rename to {}", to), errno);
  }
  void remove(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) fail_file(path, "remove", error.value());
  }
  void truncate(const std::string& path, std::uint64_t size) override {
    if (::truncate(path.c_str(), static_cast<off_t>(size)) != 0) fail_file(path, "truncate", errno);
  }
  void sync_directory(const std::string& path) override {
    const Descriptor folder(open_file(path, O_RDONLY | O_DIRECTORY, "open the folder"));
    if (::fsync(folder.get()) != 0) fail_file(path, "sync the folder to disk", errno);
  }
};

}  // namespace

FileSystem& real_files() {
  static RealFiles files;
  return files;
}

void write_file_atomically(FileSystem& files, const std::string& path, std::string_view contents) {
  static std::atomic<unsigned> counter{0};
  const std::string temporary = format("{}.tmp-{}-{}", path, ::getpid(), counter++);
  try {
    const std::unique_ptr<OutputFile> file = files.create(temporary);
    file->write(contents);
    file->sync();
    file->close();
    files.rename(temporary, path);
  } catch (const Error&) {
    try {
      files.remove(temporary);
    } catch (const Error&) {  // the first failure is the one to tell
    }
    throw;
  }
  files.sync_directory(parent_path(path));
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty() || name.starts_with('/')) return std::string(name);
  std::string path(directory);
  if (!path.ends_with('/')) path += '/';
  return path += name;
}

std::string parent_path(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, std::max<std::size_t>(slash, 1)));
}

FileLock::FileLock(const std::string& path) : path_(path) {
  for (;;) {
    const int descriptor = open_file(path, O_RDWR | O_CREAT, "open the lock");
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      char holder[32] = {};
      const ssize_t n = ::pread(descriptor, holder, sizeof(holder) - 1, 0);
      ::close(descriptor);
      if (error != EWOULDBLOCK) fail_file(path, "lock", error);
      fail(ErrorKind::usage, "{}: process {} is using this folder; wait for it or choose another folder",
           path, n > 0 ? std::string_view(holder, static_cast<std::size_t>(n)) : "(unknown)");
    }
    // The holder before us may have removed the file between our open and our lock.
    struct stat ours, current;
    if (::fstat(descriptor, &ours) == 0 && ::stat(path.c_str(), &current) == 0 &&
        ours.st_ino == current.st_ino && ours.st_dev == current.st_dev) {
      descriptor_ = descriptor;
      break;
    }
    ::close(descriptor);
  }
  const std::string id = format("{}", ::getpid());
  // Only informs: the lock holds without it.
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, id.data(), id.size(), 0) < 0) return;
}

FileLock::~FileLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace lode
