#include "io/hash.h"

#include <xxhash.h>

#include "core/format.h"

namespace lode {

struct Hasher::Impl {
  XXH3_state_t* state = XXH3_createState();
  ~Impl() { XXH3_freeState(state); }
};

std::uint64_t hash_bytes(std::span<const std::byte> data) {
  return XXH3_64bits(data.data(), data.size());
}

std::string hash_text(std::uint64_t hash) {
  return format("{:016x}", hash);
}

Hasher::Hasher() : impl_(std::make_unique<Impl>()) {
  reset();
}
Hasher::~Hasher() = default;
void Hasher::add(std::span<const std::byte> data) {
  XXH3_64bits_update(impl_->state, data.data(), data.size());
}
std::uint64_t Hasher::value() const {
  return XXH3_64bits_digest(impl_->state);
}
void Hasher::reset() {
  XXH3_64bits_reset(impl_->state);
}

}  // namespace lode
