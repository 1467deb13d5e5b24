// Attention's tile kernels in f32, for any processor; bf16 rows are widened as they are packed.
#include <algorithm>
#include <bit>
#include <limits>

#include "core/dtype.h"
#include "kernels/cpu/attention_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_f32.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, kTileLanes>;
using Vector = hn::Vec<F32>;

constexpr bool kWide = HWY_MAX_BYTES >= 64;
constexpr int kBlockRows = kWide ? 6 : 4;
constexpr int kBlockVectors = kWide ? 4 : 2;

HWY_INLINE std::int64_t lanes() {
  return static_cast<std::int64_t>(hn::Lanes(F32()));
}

HWY_INLINE Vector load(const float* from) {
  return hn::LoadU(F32(), from);
}
HWY_INLINE Vector load_cells(const Cell* from) {
  return hn::BitCast(F32(), hn::LoadU(hn::RebindToUnsigned<F32>(), from));
}
HWY_INLINE void store_cells(Vector x, Cell* to) {
  const hn::RebindToUnsigned<F32> d;
  hn::StoreU(hn::BitCast(d, x), d, to);
}

// Lanes below n.
HWY_INLINE hn::Mask<F32> lanes_below(std::int64_t n) {
  return hn::FirstN(F32(), static_cast<std::size_t>(std::clamp<std::int64_t>(n, 0, lanes())));
}

// Lanes [from, to), each counted from the vector's first.
HWY_INLINE hn::Mask<F32> lanes_between(std::int64_t from, std::int64_t to) {
  return hn::AndNot(lanes_below(from), lanes_below(to));
}

// 2^x for x up to 127, 0 below -126; relative error below 3e-7. NaN stays NaN.
HWY_INLINE Vector power_of_two(Vector x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto usable = hn::Not(hn::Lt(x, hn::Set(d, -126.0f)));
  const Vector whole = hn::Round(x);
  const Vector part = hn::Sub(x, whole);
  Vector y = hn::Set(d, 0.0013264727f);
  y = hn::MulAdd(y, part, hn::Set(d, 0.0096715130f));
  y = hn::MulAdd(y, part, hn::Set(d, 0.055507336f));
  y = hn::MulAdd(y, part, hn::Set(d, 0.24022242f));
  y = hn::MulAdd(y, part, hn::Set(d, 0.69314700f));
  y = hn::MulAdd(y, part, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, whole), hn::Set(di, 127)));
  return hn::IfThenElseZero(usable, hn::Mul(y, hn::BitCast(d, exponent)));
}

HWY_INLINE float value_at(const TileRows& x, std::int64_t r, std::int64_t c) {
  if (x.is_bf16) return to_f32(static_cast<const bf16*>(x.data)[r * x.stride + c]);
  return static_cast<const float*>(x.data)[r * x.stride + c];
}

// `count` lanes from column c on, the others 0.
HWY_INLINE Vector values_at(const TileRows& x, std::int64_t r, std::int64_t c, std::int64_t count) {
  if (count >= lanes()) {
    if (!x.is_bf16) return load(static_cast<const float*>(x.data) + r * x.stride + c);
    const hn::Rebind<std::uint16_t, F32> half;
    const hn::RebindToUnsigned<F32> full;
    const auto bits = hn::LoadU(half, static_cast<const std::uint16_t*>(x.data) + r * x.stride + c);
    return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(full, bits)));
  }
  HWY_ALIGN float values[kTileLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) values[i] = value_at(x, r, c + i);
  return hn::Load(F32(), values);
}

void pack(const TileRows& x, std::int64_t width, Cell* out) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < width; c += lanes())
      store_cells(values_at(x, r, c, x.cols - c), out + r * width + c);
  }
}

void pack_transposed(const TileRows& x, std::int64_t width, Cell* out, std::int64_t out_row) {
  const std::int64_t padded = (x.rows + kTileLanes - 1) / kTileLanes * kTileLanes;
  for (std::int64_t c = 0; c < width; ++c) {
    for (std::int64_t r = 0; r < padded; ++r) {
      out[c * out_row + r] = c < x.cols && r < x.rows ? std::bit_cast<Cell>(value_at(x, r, c)) : 0;
    }
  }
}

template <int kRows, int kVectors>
HWY_INLINE void block(const TileProduct& p, std::int64_t m, std::int64_t n) {
  const F32 d;
  const Cell* a = p.a + m * p.a_row;
  const Cell* b = p.b + n;
  float* c = p.c + m * p.c_row + n;
  Vector sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) sum[i][j] = p.add ? load(c + i * p.c_row + j * lanes()) : hn::Zero(d);
  }
  for (std::int64_t k = 0; k < p.depth; ++k) {
    Vector column[kVectors];
    for (int j = 0; j < kVectors; ++j) column[j] = load_cells(b + j * lanes());
    for (int i = 0; i < kRows; ++i) {
      const Vector row = hn::Set(d, std::bit_cast<float>(a[i * p.a_row]));
      for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(row, column[j], sum[i][j]);
    }
    a += p.a_step;
    b += p.b_row;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) hn::StoreU(sum[i][j], d, c + i * p.c_row + j * lanes());
  }
}

template <int kVectors>
HWY_INLINE void columns(const TileProduct& p, std::int64_t n) {
  std::int64_t m = 0;
  for (; m + kBlockRows <= p.rows; m += kBlockRows) block<kBlockRows, kVectors>(p, m, n);
  for (; m < p.rows; ++m) block<1, kVectors>(p, m, n);
}

void multiply(const TileProduct& p) {
  const std::int64_t step = kBlockVectors * lanes();
  std::int64_t n = 0;
  for (; n + step <= p.cols; n += step) columns<kBlockVectors>(p, n);
  for (; n < p.cols; n += lanes()) columns<1>(p, n);
}

void softmax(const TileSoftmax& t) {
  const F32 d;
  const Vector scale = hn::Set(d, t.scale);
  const std::int64_t padded = (t.cols + kTileLanes - 1) / kTileLanes * kTileLanes;
  for (std::int64_t r = 0; r < t.rows; ++r) {
    const float* s = t.s + r * t.s_row;
    const std::int64_t allowed = std::min(t.cols, t.visible + r);
    const std::int64_t from = std::clamp<std::int64_t>(t.visible + r - t.window, 0, padded);
    const std::int64_t begin = from / lanes() * lanes();
    const Vector least = hn::Set(d, -std::numeric_limits<float>::infinity());
    Vector largest = least;
    for (std::int64_t j = begin; j < allowed; j += lanes()) {
      largest = hn::Max(hn::IfThenElse(lanes_between(from - j, allowed - j), load(s + j), least), largest);
    }
    float top = hn::GetLane(hn::MaxOfLanes(d, largest)) * t.scale;
    if (!t.first) top = std::max(top, t.max[r]);
    Vector total = hn::Zero(d);
    std::int64_t j = 0;
    for (; j < begin; j += lanes()) store_cells(hn::Zero(d), t.p + r * t.p_row + j);
    for (; j < allowed; j += lanes()) {
      const Vector power = power_of_two(hn::MulSub(load(s + j), scale, hn::Set(d, top)));
      const Vector value = hn::IfThenElseZero(lanes_between(from - j, allowed - j), power);
      total = hn::Add(total, value);
      store_cells(value, t.p + r * t.p_row + j);
    }
    for (; j < padded; j += lanes()) store_cells(hn::Zero(d), t.p + r * t.p_row + j);
    const float sum = hn::GetLane(hn::SumOfLanes(d, total));
    if (t.first) {
      t.sum[r] = sum;
    } else if (top == t.max[r]) {
      t.sum[r] += sum;
    } else {
      const Vector factor = power_of_two(hn::Set(d, t.max[r] - top));
      t.sum[r] = t.sum[r] * hn::GetLane(factor) + sum;
      float* o = t.o + r * t.o_row;
      for (std::int64_t c = 0; c < t.o_row; c += lanes()) hn::StoreU(hn::Mul(load(o + c), factor), d, o + c);
    }
    t.max[r] = top;
  }
}

void gradient(const TileGradient& t) {
  const F32 d;
  const std::int64_t padded = (t.cols + kTileLanes - 1) / kTileLanes * kTileLanes;
  for (std::int64_t r = 0; r < t.rows; ++r) {
    const std::int64_t allowed = std::min(t.cols, t.visible + r), from = t.visible + r - t.window;
    const Vector scale = hn::Set(d, t.scale), lse = hn::Set(d, t.lse[r]), delta = hn::Set(d, t.delta[r]);
    for (std::int64_t j = 0; j < padded; j += lanes()) {
      const std::int64_t at = r * t.s_row + j;
      const auto mask = lanes_between(from - j, allowed - j);
      const Vector p = power_of_two(hn::MulSub(load(t.s + at), scale, lse));
      store_cells(hn::IfThenElseZero(mask, p), t.p_pairs + at);
      store_cells(hn::IfThenElseZero(mask, hn::Mul(p, hn::Sub(load(t.dp + at), delta))), t.ds + at);
    }
  }
}

void store(const float* x, std::int64_t x_row, const float* factors, float factor, const TileOutput& out) {
  const F32 d;
  for (std::int64_t r = 0; r < out.rows; ++r) {
    const Vector scale = hn::Set(d, factors != nullptr ? factors[r] : factor);
    for (std::int64_t c = 0; c < out.cols; c += lanes()) {
      HWY_ALIGN float values[kTileLanes];
      hn::Store(hn::Mul(load(x + r * x_row + c), scale), d, values);
      const std::int64_t count = std::min(lanes(), out.cols - c);
      for (std::int64_t i = 0; i < count; ++i) {
        if (out.is_bf16) {
          static_cast<bf16*>(out.data)[r * out.stride + c + i] = to_bf16(values[i]);
        } else {
          static_cast<float*>(out.data)[r * out.stride + c + i] = values[i];
        }
      }
    }
  }
}

void dot_rows(const TileRows& x, const TileRows& y, float* out) {
  const F32 d;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    Vector sum = hn::Zero(d);
    for (std::int64_t c = 0; c < x.cols; c += lanes()) {
      sum = hn::MulAdd(values_at(x, r, c, x.cols - c), values_at(y, r, c, x.cols - c), sum);
    }
    out[r] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

const TileKernels& tile_kernels() {
  static const TileKernels kernels{1,       pack,    pack_transposed, pack,  multiply,
                                   nullptr, softmax, gradient,        store, dot_rows};
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {

HWY_EXPORT(tile_kernels);

const TileKernels& f32_tiles() {
  return HWY_DYNAMIC_DISPATCH(tile_kernels)();
}

}  // namespace lode
#endif
