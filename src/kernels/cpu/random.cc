#include "kernels/random.h"

#include <algorithm>
#include <bit>

#include "core/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/random.cc"
#include "kernels/cpu/philox_simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

// Philox blocks [begin, end) of the stream, four values each, of the first n.
void fill_blocks(PhiloxKey key, std::span<const float> table, float scale, std::int64_t begin,
                 std::int64_t end, std::int64_t n, float* out) {
  const Words words;
  const hn::RebindToSigned<Floats> integers;
  const int fraction_bits = 31 - std::countr_zero(table.size() - 1);
  const U fraction_mask = hn::Set(words, (1u << fraction_bits) - 1), sign_bit = hn::Set(words, 0x80000000u);
  const V unit = set(1.0f / static_cast<float>(1u << fraction_bits));
  HWY_ALIGN std::uint32_t random[4 * kLanes];
  HWY_ALIGN float values[4 * kLanes];
  // A vector's counters share their upper word: begin is a multiple of kLanes.
  for (std::int64_t block = begin; block < end; block += kLanes) {
    const auto counter = static_cast<std::uint64_t>(block);
    const PhiloxWords w = philox_vector(
        {hn::Iota(words, static_cast<std::uint32_t>(counter)),
         hn::Set(words, static_cast<std::uint32_t>(counter >> 32)), hn::Zero(words), hn::Zero(words)},
        key);
    hn::StoreInterleaved4(w.w0, w.w1, w.w2, w.w3, words, random);
    const std::int64_t first = 4 * block, count = std::min(4 * kLanes, n - first);
    float* const to = count == 4 * kLanes ? out + first : values;
    for (std::int64_t i = 0; i < 4 * kLanes; i += kLanes) {
      const U bits = hn::Load(words, random + i);
      const auto index = hn::BitCast(integers, hn::ShiftRightSame(hn::AndNot(sign_bit, bits), fraction_bits));
      const V fraction =
          hn::Mul(hn::ConvertTo(Floats(), hn::BitCast(integers, hn::And(bits, fraction_mask))), unit);
      const V low = hn::GatherIndex(Floats(), table.data(), index);
      const V step = hn::Sub(hn::GatherIndex(Floats(), table.data() + 1, index), low);
      const V value = hn::Add(low, hn::Mul(fraction, step));
      const V sign = hn::BitCast(Floats(), hn::And(bits, sign_bit));
      hn::StoreU(hn::Mul(hn::Xor(value, sign), set(scale)), Floats(), to + i);
    }
    if (to == values) std::copy_n(values, count, out + first);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {
namespace {

HWY_EXPORT(fill_blocks);

}  // namespace

void fill_from_table(KernelContext& context, PhiloxKey key, std::span<const float> table, float scale,
                     View y) {
  LODE_ASSERT(y.dtype == DType::f32 && y.contiguous() && table.size() >= 2 &&
              std::has_single_bit(table.size() - 1));
  constexpr std::int64_t kChunk = 4096;  // blocks; a multiple of every target's lanes
  const std::int64_t n = y.numel(), blocks = (n + 3) / 4;
  parallel_for(context.threads, (blocks + kChunk - 1) / kChunk, 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(fill_blocks)
    (key, table, scale, begin * kChunk, std::min(end * kChunk, blocks), n, y.row<float>(0));
  });
}

}  // namespace lode
#endif  // HWY_ONCE
