// One file in memory for fuzz targets, and the rule they check: input is read or refused with Error(data).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/fail.h"
#include "core/file.h"

namespace lode {

class MemoryFile : public FileSystem {
 public:
  MemoryFile(std::string path, const std::uint8_t* data, std::size_t size) : path_(std::move(path)) {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    bytes_.assign(bytes, bytes + size);  // exactly as large, so that the sanitizer sees each byte too far
  }

  bool exists(const std::string& path) override { return path == path_; }
  bool is_directory(const std::string&) override { return false; }
  std::uint64_t size(const std::string& path) override { return bytes_of(path).size(); }
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    return std::make_unique<Mapped>(bytes_of(path));
  }
  std::string read(const std::string& path) override {
    const auto& bytes = bytes_of(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::vector<std::string> list(const std::string&) override { return {path_}; }
  std::uint64_t free_space(const std::string&) override { return 0; }
  std::unique_ptr<OutputFile> create(const std::string& path) override { refuse(path); }
  std::unique_ptr<OutputFile> append(const std::string& path) override { refuse(path); }
  void make_directory(const std::string& path) override { refuse(path); }
  void rename(const std::string& path, const std::string&) override { refuse(path); }
  void remove(const std::string& path) override { refuse(path); }
  void truncate(const std::string& path, std::uint64_t) override { refuse(path); }
  void sync_directory(const std::string& path) override { refuse(path); }

 private:
  struct Mapped : MappedFile {
    explicit Mapped(const std::vector<std::byte>& bytes) : bytes_(bytes) {}
    std::span<const std::byte> bytes() const override { return bytes_; }
    const std::vector<std::byte>& bytes_;
  };
  [[noreturn]] static void refuse(const std::string& path) {
    fail(ErrorKind::data, "{}: not a file that exists", path);
  }
  const std::vector<std::byte>& bytes_of(const std::string& path) const {
    if (path != path_) refuse(path);
    return bytes_;
  }

  std::string path_;
  std::vector<std::byte> bytes_;
};

// Any other error, and any other exception, ends the process.
template <class Body>
int read_or_refuse(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
  }
  return 0;
}

}  // namespace lode
