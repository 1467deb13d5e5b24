#include "ops/kv_cache.h"

#include "kernels/elementwise.h"

namespace lode {

KvCache::KvCache(Context& context, std::int64_t layers, std::int64_t width, std::int64_t capacity)
    : capacity_(capacity) {
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    keys_.push_back(context.activation(capacity, width));
    values_.push_back(context.activation(capacity, width));
  }
}

KvCache::Rows KvCache::append(Context& context, std::int64_t layer, ConstView k, ConstView v) {
  LODE_ASSERT(length_ + k.rows <= capacity_);
  const auto index = static_cast<std::size_t>(layer);
  const View keys = keys_[index].view(), values = values_[index].view();
  convert(context.kernel, k, keys.slice_rows(length_, k.rows));
  convert(context.kernel, v, values.slice_rows(length_, v.rows));
  return {keys.slice_rows(0, length_ + k.rows), values.slice_rows(0, length_ + v.rows)};
}

}  // namespace lode
