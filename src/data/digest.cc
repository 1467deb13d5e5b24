#include "data/digest.h"

#include <xxhash.h>

#include <new>

#include "core/fail.h"

namespace lode {

struct Digest::State {
  State() : hash(XXH3_createState()) {
    if (hash == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(hash);
  }
  ~State() { XXH3_freeState(hash); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* hash;
};

Digest::Digest() : state_(std::make_unique<State>()) {}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

Digest& Digest::bytes(std::span<const std::byte> data) {
  XXH3_128bits_update(state_->hash, data.data(), data.size());
  return *this;
}

Digest& Digest::field(std::string_view text) {
  field(static_cast<std::int64_t>(text.size()));
  return bytes(std::as_bytes(std::span(text)));
}

Digest& Digest::field(std::int64_t value) {
  return bytes(std::as_bytes(std::span(&value, 1)));
}

std::string Digest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash);
  return format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::uint64_t hash64(std::span<const std::byte> data) {
  return XXH3_64bits(data.data(), data.size());
}

}  // namespace lode
