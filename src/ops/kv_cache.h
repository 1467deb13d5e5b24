// Keys and values of a sequence being decoded, per layer, growing to a fixed capacity.
#pragma once

#include <vector>

#include "autograd/context.h"

namespace lode {

class KvCache {
 public:
  // width: key/value heads times their size.
  KvCache(Context& context, std::int64_t layers, std::int64_t width, std::int64_t capacity);

  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }
  // Copies the new rows of keys and values of a layer behind the cached ones; returns views of all of them.
  struct Rows {
    ConstView k, v;
  };
  Rows append(Context& context, std::int64_t layer, ConstView k, ConstView v);
  // After all layers have appended: the sequence is longer by `count`.
  void advance(std::int64_t count) { length_ += count; }

 private:
  std::vector<Tensor> keys_, values_;
  std::int64_t capacity_, length_ = 0;
};

}  // namespace lode
