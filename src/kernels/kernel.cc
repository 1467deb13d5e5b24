#include "kernels/kernel.h"

#include <algorithm>

namespace lode {

std::byte* Workspace::take(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  constexpr std::size_t kRegion = std::size_t{4} << 20;
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t first_unused = used_ == 0 ? region_ : region_ + 1;
  while (region_ < regions_.size() && regions_[region_]->bytes() - used_ < bytes) {
    ++region_;
    used_ = 0;
  }
  if (region_ == regions_.size()) {
    // In place of those that are too small: work that grows, as attention over a growing cache, would leave
    // one for each size it had.
    regions_.resize(std::min(first_unused, regions_.size()));
    region_ = regions_.size();
    regions_.push_back(memory_->allocate(std::max(bytes, kRegion), MemoryTag::workspace));
  }
  std::byte* data = regions_[region_]->data() + used_;
  used_ += bytes;
  return data;
}

void Workspace::release() {
  LODE_ASSERT(region_ == 0 && used_ == 0);
  regions_.clear();
}

}  // namespace lode
