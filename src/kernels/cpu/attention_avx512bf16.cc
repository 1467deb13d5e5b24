// Attention's tile kernels on AVX-512 bf16 dot products; compiled for such processors and called on no other.
#include <immintrin.h>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/transpose_avx512.h"

namespace lode {
namespace {

// No templates of the standard library here: the linker might keep this processor's copy for all.
std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

__m512bh as_bf16(__m512i x) {
  return reinterpret_cast<__m512bh>(x);
}
__m256i bits(__m256bh x) {
  return reinterpret_cast<__m256i>(x);
}

// Lanes below n of 16.
__mmask16 lanes_below(std::int64_t n) {
  if (n >= 16) return 0xffff;
  return n <= 0 ? __mmask16{0} : static_cast<__mmask16>((1u << n) - 1);
}

// Lanes [from, to), each counted from the vector's first.
__mmask16 lanes_between(std::int64_t from, std::int64_t to) {
  return static_cast<__mmask16>(lanes_below(to) & ~lanes_below(from));
}

// 2^x, relative error below 2e-7.
__m512 power_of_two(__m512 x) {
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 part = _mm512_sub_ps(x, whole);
  __m512 y = _mm512_set1_ps(0.0013264727f);
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(0.0096715130f));
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(0.055507336f));
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(0.24022242f));
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(0.69314700f));
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(y, whole);
}

const std::uint16_t* row_of(const TileRows& x, std::int64_t r) {
  return static_cast<const std::uint16_t*>(x.data) + r * x.stride;
}

// 16 values from column c on, 0 beyond the row's end.
__m256i load_values(const TileRows& x, std::int64_t r, std::int64_t c) {
  return _mm256_maskz_loadu_epi16(lanes_below(x.cols - c), row_of(x, r) + c);
}

__m512i load_cells(const TileRows& x, std::int64_t r, std::int64_t c) {
  if (r >= x.rows || c >= x.cols) return _mm512_setzero_si512();
  const std::int64_t left = x.cols - c;
  const __mmask32 mask = left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
  return _mm512_maskz_loadu_epi16(mask, row_of(x, r) + c);
}

void pack(const TileRows& x, std::int64_t width, Cell* out) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < width; c += 16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + (r * width + c) / 2), load_values(x, r, c));
    }
  }
}

void pack_pairs(const TileRows& x, std::int64_t width, Cell* out) {
  constexpr std::int64_t kAhead = 8;
  for (std::int64_t r = 0; r < x.rows; r += 2) {
    if (r + kAhead + 1 < x.rows) {
      // Of a matrix far wider than x each row is a short stream that no prefetcher of the processor sees.
      const auto* next = static_cast<const std::uint16_t*>(x.data) + (r + kAhead) * x.stride;
      for (std::int64_t c = 0; c < x.cols; c += 32) {
        _mm_prefetch(reinterpret_cast<const char*>(next + c), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(next + x.stride + c), _MM_HINT_T0);
      }
    }
    for (std::int64_t c = 0; c < width; c += 16) {
      const __m512i low = _mm512_cvtepu16_epi32(load_values(x, r, c));
      const __m256i next = r + 1 < x.rows ? load_values(x, r + 1, c) : _mm256_setzero_si256();
      const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(next), 16);
      _mm512_storeu_si512(out + r / 2 * width + c, _mm512_or_si512(low, high));
    }
  }
}

void pack_transposed(const TileRows& x, std::int64_t width, Cell* out, std::int64_t out_row) {
  const std::int64_t cells = width / 2;
  for (std::int64_t r = 0; r < x.rows; r += 16) {
    for (std::int64_t c = 0; c < cells; c += 16) {
      __m512i block[16];
      for (int i = 0; i < 16; ++i) block[i] = load_cells(x, r + i, 2 * c);
      transpose_16x16(block);
      const std::int64_t count = smaller(16, cells - c);
      for (std::int64_t i = 0; i < count; ++i) _mm512_storeu_si512(out + (c + i) * out_row + r, block[i]);
    }
  }
}

template <int kRows, int kVectors>
void block(const TileProduct& p, std::int64_t m, std::int64_t n) {
  const Cell* a = p.a + m * p.a_row;
  const Cell* b = p.b + n;
  float* c = p.c + m * p.c_row + n;
  __m512 sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j)
      sum[i][j] = p.add ? _mm512_loadu_ps(c + i * p.c_row + 16 * j) : _mm512_setzero_ps();
  }
  for (std::int64_t k = 0; k < p.depth; ++k) {
    __m512bh column[kVectors];
    for (int j = 0; j < kVectors; ++j) column[j] = as_bf16(_mm512_loadu_si512(b + 16 * j));
    for (int i = 0; i < kRows; ++i) {
      const __m512bh row = as_bf16(_mm512_set1_epi32(static_cast<int>(a[i * p.a_row])));
      for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], row, column[j]);
    }
    a += p.a_step;
    b += p.b_row;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) _mm512_storeu_ps(c + i * p.c_row + 16 * j, sum[i][j]);
  }
}

template <int kVectors>
void columns(const TileProduct& p, std::int64_t n) {
  std::int64_t m = 0;
  for (; m + 6 <= p.rows; m += 6) block<6, kVectors>(p, m, n);
  if (p.rows - m >= 4) {
    block<4, kVectors>(p, m, n);
    m += 4;
  }
  for (; m < p.rows; ++m) block<1, kVectors>(p, m, n);
}

void multiply(const TileProduct& p) {
  std::int64_t n = 0;
  for (; n + 64 <= p.cols; n += 64) columns<4>(p, n);
  switch ((p.cols - n) / 16) {
    case 3:
      return columns<3>(p, n);
    case 2:
      return columns<2>(p, n);
    case 1:
      return columns<1>(p, n);
    default:
      return;
  }
}

// 16 values of an output row from column c on, as f32; lanes beyond the row are 0.
__m512 load_output(const TileOutput& x, std::int64_t r, std::int64_t c) {
  const __mmask16 lanes = lanes_below(x.cols - c);
  if (!x.is_bf16) return _mm512_maskz_loadu_ps(lanes, static_cast<const float*>(x.data) + r * x.stride + c);
  const auto* row = static_cast<const std::uint16_t*>(x.data) + r * x.stride + c;
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, row)), 16));
}

void store_output(__m512 value, const TileOutput& x, std::int64_t r, std::int64_t c) {
  const __mmask16 lanes = lanes_below(x.cols - c);
  if (!x.is_bf16) {
    _mm512_mask_storeu_ps(static_cast<float*>(x.data) + r * x.stride + c, lanes, value);
  } else {
    _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(x.data) + r * x.stride + c, lanes,
                             bits(_mm512_cvtneps_pbh(value)));
  }
}

// Brings columns [c, c + kCols) of the rows that come next into the cache: so many lines in flight are more
// than the loads of one block, and the latency of memory is what a pass over a cold matrix would wait for.
template <int kCols>
void fetch_output(const TileOutput& x, std::int64_t r, std::int64_t rows, std::int64_t c) {
  const std::int64_t size = x.is_bf16 ? 2 : 4, end = smaller(r + rows, x.rows);
  for (; r < end; ++r) {
    const char* row = static_cast<const char*>(x.data) + (r * x.stride + c) * size;
    for (std::int64_t at = 0; at < kCols * size; at += 64) _mm_prefetch(row + at, _MM_HINT_T0);
  }
}

// Columns [c, c + 16 kVectors) of rows [r, r + kRows).
template <int kRows, int kVectors>
void update_block(const TileRowUpdate& u, std::int64_t r, std::int64_t c) {
  __m512 sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j)
      sum[i][j] = u.add ? load_output(u.c, r + i, c + 16 * j) : _mm512_setzero_ps();
  }
  if (u.add) fetch_output<16 * kVectors>(u.c, r + kRows, kRows, c);
  const Cell* b = u.b + c;
  for (std::int64_t k = 0; k < u.depth; ++k, b += u.b_row) {
    __m512bh row[kRows];
    for (int i = 0; i < kRows; ++i)
      row[i] = as_bf16(_mm512_set1_epi32(static_cast<int>(u.a[(r + i) * u.a_row + k])));
    for (int j = 0; j < kVectors; ++j) {
      const __m512bh column = as_bf16(_mm512_loadu_si512(b + 16 * j));
      for (int i = 0; i < kRows; ++i) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], row[i], column);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) store_output(sum[i][j], u.c, r + i, c + 16 * j);
  }
}

template <int kRows>
void update_row_group(const TileRowUpdate& u, std::int64_t r) {
  std::int64_t c = 0;
  for (; c + 64 <= u.c.cols; c += 64) update_block<kRows, 4>(u, r, c);
  for (; c < u.c.cols; c += 16) update_block<kRows, 1>(u, r, c);
}

void update_rows(const TileRowUpdate& u) {
  std::int64_t r = 0;
  for (; r + 2 <= u.c.rows; r += 2) update_row_group<2>(u, r);
  if (r < u.c.rows) update_row_group<1>(u, r);
}

void softmax(const TileSoftmax& t) {
  const __m512 scale = _mm512_set1_ps(t.scale);
  const std::int64_t padded = (t.cols + 15) / 16 * 16;
  for (std::int64_t r = 0; r < t.rows; ++r) {
    const float* s = t.s + r * t.s_row;
    Cell* p = t.p + r * t.p_row;
    const std::int64_t allowed = smaller(t.cols, t.visible + r);
    const std::int64_t low = t.visible + r - t.window, from = low < 0 ? 0 : smaller(low, padded);
    const std::int64_t begin = from / 16 * 16;
    __m512 largest = _mm512_set1_ps(-__builtin_inff());
    for (std::int64_t j = begin; j < allowed; j += 16) {
      largest =
          _mm512_mask_max_ps(largest, lanes_between(from - j, allowed - j), largest, _mm512_loadu_ps(s + j));
    }
    float top = _mm512_reduce_max_ps(largest) * t.scale;
    if (!t.first && t.max[r] > top) top = t.max[r];
    const __m512 minus_top = _mm512_set1_ps(-top);
    __m512 total = _mm512_setzero_ps();
    std::int64_t j = 0;
    for (; j < begin; j += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + j / 2), _mm256_setzero_si256());
    for (; j < allowed; j += 16) {
      const __m512 power = power_of_two(_mm512_fmadd_ps(_mm512_loadu_ps(s + j), scale, minus_top));
      const __m512 value = _mm512_maskz_mov_ps(lanes_between(from - j, allowed - j), power);
      total = _mm512_add_ps(total, value);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + j / 2), bits(_mm512_cvtneps_pbh(value)));
    }
    for (; j < padded; j += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + j / 2), _mm256_setzero_si256());
    const float sum = _mm512_reduce_add_ps(total);
    if (t.first) {
      t.sum[r] = sum;
    } else if (top == t.max[r]) {
      t.sum[r] += sum;
    } else {
      const __m512 factor = power_of_two(_mm512_set1_ps(t.max[r] - top));
      t.sum[r] = t.sum[r] * _mm512_cvtss_f32(factor) + sum;
      float* o = t.o + r * t.o_row;
      for (std::int64_t c = 0; c < t.o_row; c += 16) {
        _mm512_storeu_ps(o + c, _mm512_mul_ps(_mm512_loadu_ps(o + c), factor));
      }
    }
    t.max[r] = top;
  }
}

struct RowGradient {
  __m512 p, ds;
};

RowGradient row_gradient(const TileGradient& t, std::int64_t r, std::int64_t j) {
  const __mmask16 mask = lanes_between(t.visible + r - t.window - j, smaller(t.cols, t.visible + r) - j);
  const __m512 s = _mm512_loadu_ps(t.s + r * t.s_row + j), dp = _mm512_loadu_ps(t.dp + r * t.s_row + j);
  const __m512 exponent = _mm512_fmsub_ps(s, _mm512_set1_ps(t.scale), _mm512_set1_ps(t.lse[r]));
  const __m512 p = _mm512_maskz_mov_ps(mask, power_of_two(exponent));
  return {p, _mm512_maskz_mul_ps(mask, p, _mm512_sub_ps(dp, _mm512_set1_ps(t.delta[r])))};
}

// Cells whose halves are the same lane of two rows.
__m512i pair_rows(__m256i first, __m256i second) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(first), _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
}

void gradient(const TileGradient& t) {
  const std::int64_t padded = (t.cols + 15) / 16 * 16;
  for (std::int64_t r = 0; r < t.rows; r += 2) {
    const bool both = r + 1 < t.rows;
    for (std::int64_t j = 0; j < padded; j += 16) {
      if (j > t.visible + r || j + 16 <= t.visible + r - t.window) {  // neither row may see any
        _mm512_storeu_si512(t.p_pairs + r / 2 * t.s_row + j, _mm512_setzero_si512());
        _mm512_storeu_si512(t.ds_pairs + r / 2 * t.s_row + j, _mm512_setzero_si512());
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.ds + (r * t.s_row + j) / 2), _mm256_setzero_si256());
        if (both)
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.ds + ((r + 1) * t.s_row + j) / 2),
                              _mm256_setzero_si256());
        continue;
      }
      const RowGradient first = row_gradient(t, r, j);
      const RowGradient second =
          both ? row_gradient(t, r + 1, j) : RowGradient{_mm512_setzero_ps(), _mm512_setzero_ps()};
      const __m256i ds_first = bits(_mm512_cvtneps_pbh(first.ds)),
                    ds_second = bits(_mm512_cvtneps_pbh(second.ds));
      const __m512i p = pair_rows(bits(_mm512_cvtneps_pbh(first.p)), bits(_mm512_cvtneps_pbh(second.p)));
      _mm512_storeu_si512(t.p_pairs + r / 2 * t.s_row + j, p);
      _mm512_storeu_si512(t.ds_pairs + r / 2 * t.s_row + j, pair_rows(ds_first, ds_second));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.ds + (r * t.s_row + j) / 2), ds_first);
      if (both)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.ds + ((r + 1) * t.s_row + j) / 2), ds_second);
    }
  }
}

void store(const float* x, std::int64_t x_row, const float* factors, float factor, const TileOutput& out) {
  for (std::int64_t r = 0; r < out.rows; ++r) {
    auto* target = static_cast<std::uint16_t*>(out.data) + r * out.stride;
    const __m512 scale = _mm512_set1_ps(factors != nullptr ? factors[r] : factor);
    for (std::int64_t c = 0; c < out.cols; c += 16) {
      const __m512 value = _mm512_mul_ps(_mm512_loadu_ps(x + r * x_row + c), scale);
      _mm256_mask_storeu_epi16(target + c, lanes_below(out.cols - c), bits(_mm512_cvtneps_pbh(value)));
    }
  }
}

void dot_rows(const TileRows& x, const TileRows& y, float* out) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t c = 0; c < x.cols; c += 32) {
      sum = _mm512_dpbf16_ps(sum, as_bf16(load_cells(x, r, c)), as_bf16(load_cells(y, r, c)));
    }
    out[r] = _mm512_reduce_add_ps(sum);
  }
}

}  // namespace

const TileKernels* bf16_tiles() {
  static const TileKernels kernels{2,           pack,    pack_transposed, pack_pairs, multiply,
                                   update_rows, softmax, gradient,        store,      dot_rows};
  __builtin_cpu_init();
  const bool usable = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bf16");
  return usable ? &kernels : nullptr;
}

}  // namespace lode
