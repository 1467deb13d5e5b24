// Blocks to values. d, m are f16 in the blocks; products of them with small integers are exact in f32, so
// that every target gives the same bits.
#include "kernels/quantized.h"

#include "kernels/cpu/quantized.h"
#include "kernels/cpu/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantized.cc"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

using Ints = hn::RebindToSigned<Floats>;
using Bytes = hn::Rebind<std::uint8_t, Floats>;
using SignedBytes = hn::Rebind<std::int8_t, Floats>;
using HalfFloats = hn::Rebind<hwy::float16_t, Floats>;

HWY_INLINE U load_u8(const std::uint8_t* p, Whole) {
  return hn::PromoteTo(Words(), hn::LoadU(Bytes(), p));
}
HWY_INLINE V load_i8(const std::uint8_t* p, Whole) {
  const auto bytes = hn::LoadU(SignedBytes(), reinterpret_cast<const std::int8_t*>(p));
  return hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), bytes));
}
HWY_INLINE V load_f16(const std::uint8_t* p, Whole) {
  const auto halves = hn::LoadU(HalfFloats(), reinterpret_cast<const hwy::float16_t*>(p));
  return hn::PromoteTo(Floats(), halves);
}
HWY_INLINE V load_bf16(const std::uint8_t* p, Whole) {
  return load(reinterpret_cast<const bf16*>(p), Whole());
}
HWY_INLINE V load_f32(const std::uint8_t* p, Whole) {
  return load(reinterpret_cast<const float*>(p), Whole());
}

// Part of a vector: of elements of `size` bytes, through a buffer.
#define LODE_LOAD_PART(name, size)                                     \
  HWY_INLINE auto name(const std::uint8_t* p, Part part) {             \
    alignas(64) std::uint8_t buffer[kLanes * (size)] = {};             \
    std::memcpy(buffer, p, static_cast<std::size_t>(part.n * (size))); \
    return name(buffer, Whole());                                      \
  }
LODE_LOAD_PART(load_u8, 1)
LODE_LOAD_PART(load_i8, 1)
LODE_LOAD_PART(load_f16, 2)
LODE_LOAD_PART(load_bf16, 2)
LODE_LOAD_PART(load_f32, 4)
#undef LODE_LOAD_PART

HWY_INLINE V to_float(U u) {
  return hn::ConvertTo(Floats(), hn::BitCast(Ints(), u));
}

struct Affine {
  float scale, shift;
};

// Values of n bytes: low nibbles to `low`, high ones to `high`.
template <class T>
void nibbles(const std::uint8_t* codes, std::int64_t n, Affine a, T* low, Affine b, T* high) {
  for_vectors(n, [&](std::int64_t i, auto part) LODE_LAMBDA {
    const U u = load_u8(codes + i, part);
    const V lo = to_float(hn::And(u, hn::Set(Words(), 15u))), hi = to_float(hn::ShiftRight<4>(u));
    store(hn::MulAdd(lo, set(a.scale), set(a.shift)), low + i, part);
    store(hn::MulAdd(hi, set(b.scale), set(b.shift)), high + i, part);
  });
}

template <class T>
void q4_0(const std::uint8_t* b, T* y) {
  const Affine a{read_f16(b), -8 * read_f16(b)};
  nibbles(b + 2, 16, a, y, a, y + 16);
}

template <class T>
void q4_1(const std::uint8_t* b, T* y) {
  const Affine a{read_f16(b), read_f16(b + 2)};
  nibbles(b + 4, 16, a, y, a, y + 16);
}

template <class T>
void q8_0(const std::uint8_t* b, T* y) {
  const float d = read_f16(b);
  for_vectors(32, [&](std::int64_t i, auto part)
                      LODE_LAMBDA { store(hn::Mul(load_i8(b + 2 + i, part), set(d)), y + i, part); });
}

template <class T>
void q4_k(const std::uint8_t* b, T* y) {
  const float d = read_f16(b), dmin = read_f16(b + 2);
  for (int pair = 0; pair < 4; ++pair) {
    const ScaleAndMin even = scale_and_min(b + 4, 2 * pair), odd = scale_and_min(b + 4, 2 * pair + 1);
    nibbles(b + 16 + 32 * pair, 32, {d * even.scale, -dmin * even.min}, y + 64 * pair,
            {d * odd.scale, -dmin * odd.min}, y + 64 * pair + 32);
  }
}

template <class T>
void q6_k(const std::uint8_t* b, T* y) {
  const std::uint8_t *high = b + 128, *scales = b + 192;
  const float d = read_f16(b + 208);
  for (int n = 0; n < 2; ++n) {
    for (int half = 0; half < 2; ++half) {  // 16 values of each group share a scale
      float scale[4];
      for (int g = 0; g < 4; ++g)
        scale[g] = d * static_cast<float>(static_cast<std::int8_t>(scales[8 * n + 2 * g + half]));
      const std::uint8_t* low = b + 64 * n + 16 * half;
      T* out = y + 128 * n + 16 * half;
      for_vectors(16, [&](std::int64_t i, auto part) LODE_LAMBDA {
        const U nibble = hn::Set(Words(), 15u), top = hn::Set(Words(), 0x30u);
        const U l0 = load_u8(low + i, part), l1 = load_u8(low + 32 + i, part),
                h = load_u8(high + 32 * n + 16 * half + i, part);
        const U q0 = hn::Or(hn::And(l0, nibble), hn::And(hn::ShiftLeft<4>(h), top));
        const U q1 = hn::Or(hn::And(l1, nibble), hn::And(hn::ShiftLeft<2>(h), top));
        const U q2 = hn::Or(hn::ShiftRight<4>(l0), hn::And(h, top));
        const U q3 = hn::Or(hn::ShiftRight<4>(l1), hn::And(hn::ShiftRight<2>(h), top));
        const V centre = set(32);
        store(hn::Mul(hn::Sub(to_float(q0), centre), set(scale[0])), out + i, part);
        store(hn::Mul(hn::Sub(to_float(q1), centre), set(scale[1])), out + 32 + i, part);
        store(hn::Mul(hn::Sub(to_float(q2), centre), set(scale[2])), out + 64 + i, part);
        store(hn::Mul(hn::Sub(to_float(q3), centre), set(scale[3])), out + 96 + i, part);
      });
    }
  }
}

// Formats without vector code: through f32.
template <class T>
void plain_block(QuantFormat format, const std::uint8_t* b, T* y) {
  float values[256];
  decode_block(format, b, values);
  for_vectors(block_values(format),
              [&](std::int64_t i, auto part) LODE_LAMBDA { store(load(values + i, part), y + i, part); });
}

template <class T>
void nf4_row(const std::uint8_t* row, std::int64_t cols, T* y) {
  const Nf4Row parts(row, cols);
  float values[kNf4Block];
  for (std::int64_t block = 0; block < parts.blocks; ++block) {
    const std::int64_t begin = block * kNf4Block, n = std::min(kNf4Block, cols - begin);
    if constexpr (std::is_same_v<T, float>) {
      if (n == kNf4Block) {
        parts.decode(block, y + begin);
        continue;
      }
    }
    parts.decode(block, values);
    for_vectors(n, [&](std::int64_t i, auto part)
                       LODE_LAMBDA { store(load(values + i, part), y + begin + i, part); });
  }
}

template <class T>
void decode_row(QuantFormat format, const std::uint8_t* row, std::int64_t cols, T* y) {
  const std::int64_t values = block_values(format), bytes = block_bytes(format);
  const auto blocks = [&](auto decode) LODE_LAMBDA {
    for (std::int64_t i = 0; i < cols; i += values, row += bytes) decode(row, y + i);
  };
  switch (format) {
    case QuantFormat::f32:
      return for_vectors(cols, [&](std::int64_t i, auto part)
                                   LODE_LAMBDA { store(load_f32(row + 4 * i, part), y + i, part); });
    case QuantFormat::f16:
      return for_vectors(cols, [&](std::int64_t i, auto part)
                                   LODE_LAMBDA { store(load_f16(row + 2 * i, part), y + i, part); });
    case QuantFormat::bf16:
      return for_vectors(cols, [&](std::int64_t i, auto part)
                                   LODE_LAMBDA { store(load_bf16(row + 2 * i, part), y + i, part); });
    case QuantFormat::int8: {
      const float scale = read_f32(row) / 127;
      return for_vectors(cols, [&](std::int64_t i, auto part) LODE_LAMBDA {
        store(hn::Mul(load_i8(row + 4 + i, part), set(scale)), y + i, part);
      });
    }
    case QuantFormat::nf4:
      return nf4_row(row, cols, y);
    case QuantFormat::q4_0:
      return blocks(q4_0<T>);
    case QuantFormat::q4_1:
      return blocks(q4_1<T>);
    case QuantFormat::q8_0:
      return blocks(q8_0<T>);
    case QuantFormat::q4_k:
      return blocks(q4_k<T>);
    case QuantFormat::q6_k:
      return blocks(q6_k<T>);
    default:
      return blocks([format](const std::uint8_t* b, T* out) LODE_LAMBDA { plain_block(format, b, out); });
  }
}

void decode_f32(QuantFormat format, const std::uint8_t* row, std::int64_t cols, float* y) {
  decode_row(format, row, cols, y);
}
void decode_bf16(QuantFormat format, const std::uint8_t* row, std::int64_t cols, bf16* y) {
  decode_row(format, row, cols, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {

HWY_EXPORT(decode_f32);
HWY_EXPORT(decode_bf16);

void dequantize_rows(KernelContext& context, QuantFormat format, const std::byte* rows, std::int64_t first,
                     View out) {
  LODE_ASSERT(out.dtype == DType::f32 || out.dtype == DType::bf16);
  LODE_ASSERT(fits(format, out.cols));
  const std::int64_t bytes = row_bytes(format, out.cols);
  const auto* data = reinterpret_cast<const std::uint8_t*>(rows) + first * bytes;
  for_rows(context, out.rows, out.cols, [&](std::int64_t begin, std::int64_t end) {
    const auto to_f32 = HWY_DYNAMIC_DISPATCH(decode_f32);
    const auto to_bf16 = HWY_DYNAMIC_DISPATCH(decode_bf16);
    for (std::int64_t r = begin; r < end; ++r) {
      if (out.dtype == DType::f32) {
        to_f32(format, data + r * bytes, out.cols, out.row<float>(r));
      } else {
        to_bf16(format, data + r * bytes, out.cols, out.row<bf16>(r));
      }
    }
  });
}

}  // namespace lode
#endif
