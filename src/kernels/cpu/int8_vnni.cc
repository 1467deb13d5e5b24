// The parts of an int8 product on AVX-512 8-bit dot products; compiled for such processors and called on no
// other.
#include <immintrin.h>

#include "kernels/cpu/int8_tiles.h"
#include "kernels/cpu/transpose_avx512.h"

namespace lode {
namespace {

// No templates of the standard library here: the linker might keep this processor's copy for all.
std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

__mmask16 lanes_below(std::int64_t n) {
  if (n >= 16) return 0xffff;
  return n <= 0 ? __mmask16{0} : static_cast<__mmask16>((1u << n) - 1);
}

__mmask64 bytes_below(std::int64_t n) {
  if (n >= 64) return ~__mmask64{0};
  return n <= 0 ? __mmask64{0} : (__mmask64{1} << n) - 1;
}

__m512 widen(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// Rounded to nearest even; NaN stays NaN.
__m256i narrow(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __mmask16 numbers = _mm512_cmp_ps_mask(value, value, _CMP_ORD_Q);
  const __m512i bias = _mm512_maskz_add_epi32(numbers, odd, _mm512_set1_epi32(0x7fff));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16));
}

__m512 load_values(const void* x, bool is_bf16, std::int64_t at, __mmask16 lanes) {
  if (!is_bf16) return _mm512_maskz_loadu_ps(lanes, static_cast<const float*>(x) + at);
  return widen(_mm256_maskz_loadu_epi16(lanes, static_cast<const std::uint16_t*>(x) + at));
}

__m512 load_scaled(const Int8Quantize& b, std::int64_t at) {
  const __mmask16 lanes = lanes_below(b.n - at);
  const __m512 value = load_values(b.x, b.is_bf16, at, lanes);
  return b.factors == nullptr ? value : _mm512_mul_ps(value, _mm512_maskz_loadu_ps(lanes, b.factors + at));
}

// As integers, magnitudes keep their order and NaN is above infinity.
__m512i larger_magnitude(__m512i most, __m512 value) {
  const __m512i bits = _mm512_and_si512(_mm512_castps_si512(value), _mm512_set1_epi32(0x7fffffff));
  return _mm512_max_epu32(most, bits);
}

// A whole block, which stays in registers.
void quantize_whole(const Int8Quantize& b) {
  static_assert(kInt8Depth == 64);
  __m512 value[4];
  __m512i most = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    value[i] = load_values(b.x, b.is_bf16, 16 * i, 0xffff);
    if (b.factors != nullptr) value[i] = _mm512_mul_ps(value[i], _mm512_loadu_ps(b.factors + 16 * i));
    most = larger_magnitude(most, value[i]);
  }
  const Int8Scale scale = int8_scale(_mm512_reduce_max_epu32(most));
  *b.scale = scale.scale;
  const __mmask16 lanes = scale.inverse == 0 ? __mmask16{0} : __mmask16{0xffff};
  const __m512 inverse = _mm512_set1_ps(scale.inverse);
  __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i q = _mm512_maskz_cvtps_epi32(lanes, _mm512_mul_ps(value[i], inverse));
    sum = _mm512_add_epi32(sum, q);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(b.q + 16 * i), _mm512_cvtsepi32_epi8(q));
  }
  *b.offset = -128 * _mm512_reduce_add_epi32(sum);
}

void quantize(const Int8Quantize& b) {
  if (b.n == kInt8Depth) return quantize_whole(b);
  __m512i most = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < b.n; i += 16) {
    most = larger_magnitude(most, load_scaled(b, i));
  }
  const Int8Scale scale = int8_scale(_mm512_reduce_max_epu32(most));
  *b.scale = scale.scale;
  const __m512 inverse = _mm512_set1_ps(scale.inverse);
  __m512i sum = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < b.n; i += 16) {
    const __mmask16 lanes = scale.inverse == 0 ? __mmask16{0} : lanes_below(b.n - i);
    const __m512i q = _mm512_maskz_cvtps_epi32(lanes, _mm512_mul_ps(load_scaled(b, i), inverse));
    sum = _mm512_add_epi32(sum, q);
    _mm_mask_storeu_epi8(b.q + i, lanes_below(b.n - i), _mm512_cvtsepi32_epi8(q));
  }
  *b.offset = -128 * _mm512_reduce_add_epi32(sum);
}

void pack_rows(const Int8Rows& x, std::uint8_t* out) {
  const __m512i plus = _mm512_set1_epi8(static_cast<char>(0x80));
  const std::int64_t quads = (x.cols + 3) / 4;
  for (std::int64_t k = 0; k < x.cols; k += 64) {
    const __mmask64 bytes = bytes_below(x.cols - k);
    for (std::int64_t r = 0; r < kPanelCols; r += 16) {
      __m512i block[16];
      for (std::int64_t i = 0; i < 16; ++i) {
        const __m512i row = r + i < x.rows ? _mm512_maskz_loadu_epi8(bytes, x.data + (r + i) * x.stride + k)
                                           : _mm512_setzero_si512();
        block[i] = _mm512_xor_si512(row, plus);
      }
      transpose_16x16(block);
      const std::int64_t count = smaller(16, quads - k / 4);
      for (std::int64_t i = 0; i < count; ++i)
        _mm512_storeu_si512(out + (k / 4 + i) * 4 * kPanelCols + 4 * r, block[i]);
    }
  }
}

void pack_cols(const Int8Rows& x, std::uint8_t* out) {
  const __m512i plus = _mm512_set1_epi8(static_cast<char>(0x80));
  const __mmask64 bytes = bytes_below(x.cols);
  for (std::int64_t r = 0; r < x.rows; r += 4, out += 4 * kPanelCols) {
    __m512i row[4];
    for (std::int64_t i = 0; i < 4; ++i) {
      row[i] = r + i < x.rows ? _mm512_maskz_loadu_epi8(bytes, x.data + (r + i) * x.stride)
                              : _mm512_setzero_si512();
      row[i] = _mm512_xor_si512(row[i], plus);
    }
    const __m512i low01 = _mm512_unpacklo_epi8(row[0], row[1]), high01 = _mm512_unpackhi_epi8(row[0], row[1]);
    const __m512i low23 = _mm512_unpacklo_epi8(row[2], row[3]), high23 = _mm512_unpackhi_epi8(row[2], row[3]);
    // Each 128-bit lane l of q0 .. q3: columns 16 l + 0 .. 3, + 4 .. 7, + 8 .. 11, + 12 .. 15.
    const __m512i q0 = _mm512_unpacklo_epi16(low01, low23), q1 = _mm512_unpackhi_epi16(low01, low23);
    const __m512i q2 = _mm512_unpacklo_epi16(high01, high23), q3 = _mm512_unpackhi_epi16(high01, high23);
    const __m512i a = _mm512_shuffle_i32x4(q0, q1, 0x44), b = _mm512_shuffle_i32x4(q2, q3, 0x44);
    const __m512i c = _mm512_shuffle_i32x4(q0, q1, 0xee), d = _mm512_shuffle_i32x4(q2, q3, 0xee);
    _mm512_storeu_si512(out, _mm512_shuffle_i32x4(a, b, 0x88));
    _mm512_storeu_si512(out + 64, _mm512_shuffle_i32x4(a, b, 0xdd));
    _mm512_storeu_si512(out + 128, _mm512_shuffle_i32x4(c, d, 0x88));
    _mm512_storeu_si512(out + 192, _mm512_shuffle_i32x4(c, d, 0xdd));
  }
}

// sum += products of unsigned and signed bytes, four to a lane. With the intrinsic GCC 12 keeps a copy of the
// sums in memory and writes to it after every product.
void add_products(__m512i& sum, __m512i bytes, __m512i quad) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(quad));
}

struct StripBlock {
  const std::int8_t* a;
  const std::uint8_t* b;
  std::int64_t quads;
  const float* scale;
  const std::int32_t* offset;
  float* partial;
  bool add;
};

// Inlined: the registers that it needs leave none for what a call would have to keep.
__attribute__((always_inline)) inline void multiply_block(const Int8Product& p, const StripBlock& block) {
  constexpr int kRows = kStripRows, kVectors = kPanelCols / 16;
  static_assert(kRows == 6 && kVectors == 4, "as many sums as there are registers for");
  __m512i sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_set1_epi32(block.offset[i * p.step]);
  }
  // A long left operand comes from behind the second cache, a line of each row at a time: those of the next
  // strip.
  for (int i = 0; i < kRows; ++i)
    _mm_prefetch(reinterpret_cast<const char*>(block.a + (kRows + i) * p.a_row), _MM_HINT_T0);
  const std::int8_t* a = block.a;
  const std::uint8_t* b = block.b;
  for (std::int64_t k = 0; k < block.quads; ++k, a += 4, b += 4 * kPanelCols) {
    __m512i column[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) column[j] = _mm512_loadu_si512(b + 64 * j);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      int quad;
      __builtin_memcpy(&quad, a + i * p.a_row, 4);
      const __m512i row = _mm512_set1_epi32(quad);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) add_products(sum[i][j], column[j], row);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    const __m512 factor = _mm512_set1_ps(block.scale[i * p.step]);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      float* target = block.partial + i * kPanelCols + 16 * j;
      const __m512 before = block.add ? _mm512_loadu_ps(target) : _mm512_setzero_ps();
      _mm512_storeu_ps(target, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][j]), factor, before));
    }
  }
}

void multiply(const Int8Product& p) {
  for (std::int64_t s = 0; s < p.strips; ++s) {
    const std::int64_t row = s * kStripRows;
    for (std::int64_t k = 0, block = 0; k < p.quads; k += p.block_quads, ++block) {
      multiply_block(p, {.a = p.a + row * p.a_row + 4 * k,
                         .b = p.b + 4 * kPanelCols * k,
                         .quads = smaller(p.block_quads, p.quads - k),
                         .scale = p.scale + row * p.step + block,
                         .offset = p.offset + row * p.step + block,
                         .partial = p.partial + row * kPanelCols,
                         .add = p.add || block > 0});
    }
  }
}

void finish(const Int8Output& o) {
  for (std::int64_t r = 0; r < o.rows; ++r) {
    for (std::int64_t n = 0; n < o.cols; n += 16) {
      const __mmask16 lanes = lanes_below(o.cols - n);
      __m512 value = _mm512_loadu_ps(o.partial + r * kPanelCols + n);
      if (o.scale != nullptr) value = _mm512_mul_ps(value, _mm512_maskz_loadu_ps(lanes, o.scale + n));
      if (o.bias != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(lanes, o.bias + n));
      const std::int64_t at = r * o.c_stride + n;
      if (o.add) value = _mm512_add_ps(value, load_values(o.c, o.is_bf16, at, lanes));
      if (o.is_bf16) {
        _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(o.c) + at, lanes, narrow(value));
      } else {
        _mm512_mask_storeu_ps(static_cast<float*>(o.c) + at, lanes, value);
      }
    }
  }
}

}  // namespace

const Int8Tiles* vnni_int8_tiles() {
  static const Int8Tiles tiles{quantize, pack_rows, pack_cols, multiply, finish};
  __builtin_cpu_init();
  const bool usable = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
  return usable ? &tiles : nullptr;
}

}  // namespace lode
