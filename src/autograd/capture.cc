#include "autograd/capture.h"

#include <algorithm>
#include <utility>

#include "core/format.h"

namespace lode {

GraphCapture::MicroStep::MicroStep(GraphCapture* capture, Memory& memory, std::int64_t tokens)
    : capture_(capture), tokens_(tokens) {
  if (capture == nullptr) return;
  const auto found = capture->buckets_.find(tokens);
  const bool known = found != capture->buckets_.end();
  if (known && !found->second.usable) {
    ++capture->counts_.dynamic;
    return;
  }
  stretch_.emplace(memory, known ? &found->second.plan : nullptr);
}

GraphCapture::MicroStep::~MicroStep() {
  if (!stretch_ || !done_) return;
  capture_->learn(tokens_, *stretch_);
}

void GraphCapture::learn(std::int64_t tokens, const MemoryStretch& stretch) {
  const auto found = buckets_.find(tokens);
  if (found != buckets_.end() && stretch.deviation().empty()) {
    ++counts_.replayed;
    return;
  }
  Bucket bucket{stretch.plan()};
  const ArenaPlan& plan = bucket.plan;
  bucket.usable = plan.total() <= plan.total_needed();
  const auto shape = format("{} blocks, {} at once", plan.blocks.size(), format_bytes(plan.total_needed()));
  if (!bucket.usable) {
    say_(format("graph: micro-steps of {} tokens stay dynamic: {} would need an arena of {}", tokens, shape,
                format_bytes(plan.total())));
  } else if (found == buckets_.end()) {
    ++counts_.recorded;
    say_(format("graph: captured a micro-step of {} tokens: {}", tokens, shape));
  } else {
    ++counts_.recorded_again;
    constexpr std::int64_t kSaid = 10;
    if (counts_.recorded_again <= kSaid) {
      say_(format("graph: captured a micro-step of {} tokens again: {}{}", tokens, stretch.deviation(),
                  counts_.recorded_again == kSaid ? "; from here on they are counted only" : ""));
    }
  }
  if (bucket.usable) counts_.largest_arena = std::max(counts_.largest_arena, plan.total());
  buckets_.insert_or_assign(tokens, std::move(bucket));
}

}  // namespace lode
