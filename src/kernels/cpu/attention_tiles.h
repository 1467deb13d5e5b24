// The tile kernels that attention is made of, in two forms: f32 (any processor) and bf16 dot products.
// Operands of products are packed into cells of 4 bytes: one f32, or a pair of bf16 that lie next to each
// other along the summed dimension. Only plain types here: one of the sources is compiled for a newer
// processor than the rest of the program.
#pragma once

#include <cstdint>

namespace lode {

using Cell = std::uint32_t;

inline constexpr std::int64_t kTileLanes = 16;  // columns of products are padded to a multiple of this

// Rows of an activation, as the caller gave them: f32 or bf16, `stride` elements apart.
struct TileRows {
  const void* data;
  bool is_bf16;
  std::int64_t stride, rows, cols;
};

struct TileOutput {
  void* data;
  bool is_bf16;
  std::int64_t stride, rows, cols;
};

// c[m, n] (+)= sum over k of a(m, k) * b(k, n), in cells: a(m, k) is a[m * a_row + k * a_step], b's rows are
// b_row apart. cols is a multiple of kTileLanes.
struct TileProduct {
  std::int64_t rows, cols, depth;
  const Cell* a;
  std::int64_t a_row, a_step;
  const Cell* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  bool add;
};

// c[m, n] (+)= sum over a few k of a(m, k) * b(k, n), all columns of two rows at a time: c is far larger than
// the caches, and memory delivers two long streams several times as fast as many short ones. Operands as for
// TileProduct; c as the caller gave it, rounded once.
struct TileRowUpdate {
  std::int64_t depth;  // in cells
  const Cell* a;
  std::int64_t a_row;
  const Cell* b;
  std::int64_t b_row;
  TileOutput c;
  bool add;
};

// One step of the softmax over keys seen so far. Key j of row r is allowed when visible + r - window <= j <
// visible + r and j < cols; not every row needs an allowed key, except in the first step.
struct TileSoftmax {
  std::int64_t rows, cols, visible, window;
  const float* s;  // [rows, s_row] products, not yet scaled
  std::int64_t s_row;
  float scale;       // includes log2(e): powers of two are taken
  bool first;        // nothing seen before: max, sum and o are undefined
  float *max, *sum;  // [rows]
  float* o;          // [rows, o_row], rescaled to the new maximum
  std::int64_t o_row;
  Cell*
      p;  // [rows, p_row] out: pairs along the keys, 0 where not allowed, up to a multiple of kTileLanes keys
  std::int64_t p_row;
};

// p = 2^(scale * s - lse), ds = p * (dp - delta), 0 where not allowed (as for the softmax).
struct TileGradient {
  std::int64_t rows, cols, visible, window;
  const float *s, *dp;  // [rows, s_row]
  std::int64_t s_row;
  float scale;
  const float *lse, *delta;  // [rows]; lse in powers of two
  Cell *p_pairs, *ds_pairs;  // [rows / pair, s_row] out: pairs along the rows, an odd last row paired with 0
  Cell* ds;                  // [rows, s_row / pair] out: pairs along the keys; may be ds_pairs when pair is 1
};

struct TileKernels {
  int pair;  // values in a cell
  // out [rows, width / pair]: pairs along the columns; columns from x.cols to width are 0.
  void (*pack)(const TileRows& x, std::int64_t width, Cell* out);
  // out [width / pair, out_row]: the transpose of that; x.rows up to a multiple of kTileLanes are 0.
  void (*pack_transposed)(const TileRows& x, std::int64_t width, Cell* out, std::int64_t out_row);
  // out [ceil(rows / pair), width]: pairs along the rows; an odd last row is paired with 0.
  void (*pack_pairs)(const TileRows& x, std::int64_t width, Cell* out);
  void (*multiply)(const TileProduct& product);
  void (*update_rows)(const TileRowUpdate& update);  // nullptr in the f32 form
  void (*softmax)(const TileSoftmax& step);
  void (*gradient)(const TileGradient& step);
  // out[r, c] = x[r, c] * (factors[r] or factor)
  void (*store)(const float* x, std::int64_t x_row, const float* factors, float factor,
                const TileOutput& out);
  // out[r] = sum over c of x[r, c] * y[r, c]
  void (*dot_rows)(const TileRows& x, const TileRows& y, float* out);
};

const TileKernels& f32_tiles();   // of the best SIMD target, or the one forced
const TileKernels* bf16_tiles();  // takes bf16 rows only; nullptr when this processor lacks the instructions

}  // namespace lode
