// Checksums of file contents: XXH3, 64 bit. They find damage, not malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lode {

inline constexpr std::string_view kHashName = "xxh3-64";

std::uint64_t hash_bytes(std::span<const std::byte> data);
std::string hash_text(std::uint64_t hash);  // 16 hexadecimal digits

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void add(std::span<const std::byte> data);
  std::uint64_t value() const;  // of everything added so far
  void reset();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lode
