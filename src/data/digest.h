// Content hashes: XXH3, 128 bit. For identity and damage, not against forgery.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lode {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  Digest& bytes(std::span<const std::byte> data);  // raw, without its length
  Digest& field(std::string_view text);            // with its length, so that neighbours cannot run together
  Digest& field(std::int64_t value);
  std::string hex() const;  // 32 hexadecimal digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t hash64(std::span<const std::byte> data);

}  // namespace lode
