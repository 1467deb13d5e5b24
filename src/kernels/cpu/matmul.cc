// Matrix products by oneDNN on plain strided buffers; the only file that calls it.
#include "kernels/matmul.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "core/format.h"
#include "core/parallel.h"
#include "core/rehearsal.h"
#include "kernels/cpu/matvec.h"
#include "kernels/cpu/narrow_matmul.h"

namespace lode {
namespace {

// Everything a primitive depends on. Strides count elements.
struct ProductKey {
  std::int64_t m, n, k, a_stride, b_stride, c_stride;
  bool transpose_a, transpose_b;
  DType in, out;
  bool bias, accumulate, packed_b;
  int threads;
  auto operator<=>(const ProductKey&) const = default;
};

struct Primitive {
  dnnl::memory::desc a, b, c, bias, scratch;
  dnnl::matmul run;
  bool reference = false;  // oneDNN has nothing but its reference loops
};

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type onednn_type(DType dtype) {
  LODE_ASSERT(dtype == DType::f32 || dtype == DType::bf16);
  return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc describe(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t stride,
                            bool transpose) {
  const dnnl::memory::dims strides =
      transpose ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, cols}, onednn_type(dtype), strides};
}

// oneDNN plans a primitive for the number of OpenMP threads it sees: making and running both happen in this
// scope.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
  }
  ~ThreadScope() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

int usable_threads(const KernelContext& context) {
  return omp_in_parallel() ? 1 : std::max(1, std::min(context.threads, omp_get_thread_limit()));
}

std::shared_ptr<const Primitive> make_primitive(const ProductKey& key) {
  auto made = std::make_shared<Primitive>();
  made->a = describe(key.m, key.k, key.in, key.a_stride, key.transpose_a);
  made->b = key.packed_b
                ? dnnl::memory::desc({key.k, key.n}, onednn_type(key.in), dnnl::memory::format_tag::any)
                : describe(key.k, key.n, key.in, key.b_stride, key.transpose_b);
  made->c = describe(key.m, key.n, key.out, key.c_stride, false);
  if (key.bias) made->bias = describe(1, key.n, DType::f32, key.n, false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  try {
    const auto desc = key.bias ? dnnl::matmul::desc(made->a, made->b, made->bias, made->c)
                               : dnnl::matmul::desc(made->a, made->b, made->c);
    const dnnl::matmul::primitive_desc planned(desc, attributes, cpu_engine());
    made->reference = std::string_view(planned.impl_info_str()).starts_with("ref");
    if (made->reference) return made;
    made->b = planned.weights_desc();
    made->scratch = planned.scratchpad_desc();
    made->run = dnnl::matmul(planned);
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) {
      fail(ErrorKind::internal, "oneDNN cannot plan a product of {} x {} x {}: {}", key.m, key.n, key.k,
           error.what());
    }
    made->reference = true;
  }
  return made;
}

// Primitives are immutable once made; the table only saves making them again (0.25 to 1 ms each).
std::shared_ptr<const Primitive> find_primitive(const ProductKey& key) {
  constexpr std::size_t kMaxPrimitives = 2048;
  static std::mutex mutex;
  static std::map<ProductKey, std::shared_ptr<const Primitive>> table;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = table.find(key); found != table.end()) return found->second;
  }
  auto made = make_primitive(key);
  const std::lock_guard lock(mutex);
  if (table.size() >= kMaxPrimitives) table.clear();
  return table.emplace(key, std::move(made)).first->second;
}

void execute(const Primitive& primitive, const void* a, const void* b, const void* bias, void* c,
             void* scratch) {
  thread_local dnnl::stream stream(cpu_engine());
  const dnnl::engine& engine = cpu_engine();
  const auto borrow = [&engine](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, engine, const_cast<void*>(data));
  };
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, borrow(primitive.a, a)},
                                                  {DNNL_ARG_WEIGHTS, borrow(primitive.b, b)},
                                                  {DNNL_ARG_DST, borrow(primitive.c, c)}};
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, borrow(primitive.bias, bias));
  if (scratch != nullptr) arguments.emplace(DNNL_ARG_SCRATCHPAD, borrow(primitive.scratch, scratch));
  primitive.run.execute(stream, arguments);
  stream.wait();
}

// The stride of a single row is of no importance to us, but oneDNN wants it to cover the row.
std::int64_t row_stride(ConstView x) {
  return x.rows <= 1 ? x.cols : x.stride;
}

ProductKey key_of(const MatMul& p, int threads) {
  return {.m = p.c.rows,
          .n = p.c.cols,
          .k = p.transpose_a ? p.a.rows : p.a.cols,
          .a_stride = row_stride(p.a),
          .b_stride = row_stride(p.b),
          .c_stride = row_stride(p.c),
          .transpose_a = p.transpose_a,
          .transpose_b = p.transpose_b,
          .in = p.a.dtype,
          .out = p.c.dtype,
          .bias = p.bias.data != nullptr,
          .accumulate = p.accumulate,
          .packed_b = false,
          .threads = threads};
}

// False when oneDNN has no kernel for this product.
bool multiply(KernelContext& context, const MatMul& p) {
  const int threads = usable_threads(context);
  const ThreadScope scope(threads);
  const auto primitive = find_primitive(key_of(p, threads));
  if (primitive->reference) return false;
  Workspace::Scope workspace(*context.workspace);
  const std::size_t bytes = primitive->scratch.get_size();
  std::byte* scratch = bytes > 0 ? workspace.take(bytes) : nullptr;
  if (!Rehearsal::active()) execute(*primitive, p.a.data, p.b.data, p.bias.data, p.c.data, scratch);
  return true;
}

void multiply_f32(KernelContext& context, const MatMul& p) {
  if (!multiply(context, p)) {
    fail(ErrorKind::internal, "oneDNN has no f32 kernel for a product of {} x {}", p.c.rows, p.c.cols);
  }
}

void widen(KernelContext& context, ConstView from, View to) {
  parallel_for(context.threads, from.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const bf16* source = from.row<bf16>(r);
      float* target = to.row<float>(r);
      for (std::int64_t c = 0; c < from.cols; ++c) target[c] = to_f32(source[c]);
    }
  });
}

// target = rounded (sum (+ target))
void round_into(KernelContext& context, ConstView sum, bool accumulate, View target) {
  parallel_for(context.threads, sum.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* source = sum.row<float>(r);
      bf16* out = target.row<bf16>(r);
      for (std::int64_t c = 0; c < sum.cols; ++c) {
        out[c] = to_bf16(accumulate ? source[c] + to_f32(out[c]) : source[c]);
      }
    }
  });
}

// The part [row, row + rows) x [col, col + cols) of op(x), as stored.
ConstView part_of(ConstView x, bool transpose, std::int64_t row, std::int64_t rows, std::int64_t col,
                  std::int64_t cols) {
  return transpose ? x.slice_rows(col, cols).slice_cols(row, rows)
                   : x.slice_rows(row, rows).slice_cols(col, cols);
}

// What oneDNN has no kernel for (bf16 operands without bf16 dot products, f32 operands with a bf16 result):
// multiplied in f32, panel by panel, operands widened before and the result rounded after.
void multiply_in_panels(KernelContext& context, const MatMul& p) {
  constexpr std::int64_t kRows = 512, kCols = 1024, kDepth = 1024;
  const std::int64_t m = p.c.rows, n = p.c.cols, k = p.transpose_a ? p.a.rows : p.a.cols;
  Workspace::Scope workspace(*context.workspace);
  float* a_panel = workspace.take<float>(std::min(m, kRows) * std::min(k, kDepth));
  float* b_panel = workspace.take<float>(std::min(n, kCols) * std::min(k, kDepth));
  const bool narrow = p.c.dtype == DType::bf16;
  float* c_panel = narrow ? workspace.take<float>(std::min(m, kRows) * std::min(n, kCols)) : nullptr;
  const auto widened = [&context](ConstView x, float* panel) -> ConstView {
    if (x.dtype == DType::f32) return x;
    const View view{panel, DType::f32, x.rows, x.cols, x.cols};
    widen(context, x, view);
    return view;
  };
  for (std::int64_t j = 0; j < n; j += kCols) {
    const std::int64_t cols = std::min(kCols, n - j);
    for (std::int64_t i = 0; i < m; i += kRows) {
      const std::int64_t rows = std::min(kRows, m - i);
      const View target = p.c.slice_rows(i, rows).slice_cols(j, cols);
      MatMul part{.transpose_a = p.transpose_a, .transpose_b = p.transpose_b};
      part.c = narrow ? View{c_panel, DType::f32, rows, cols, cols} : target;
      for (std::int64_t d = 0; d < k; d += kDepth) {
        const std::int64_t depth = std::min(kDepth, k - d);
        part.a = widened(part_of(p.a, p.transpose_a, i, rows, d, depth), a_panel);
        part.b = widened(part_of(p.b, p.transpose_b, d, depth, j, cols), b_panel);
        part.bias = d == 0 && p.bias.data != nullptr ? p.bias.slice_cols(j, cols) : ConstView{};
        part.accumulate = d > 0 || (p.accumulate && !narrow);
        multiply_f32(context, part);
      }
      if (narrow) round_into(context, part.c, p.accumulate, target);
    }
  }
}

void check(const MatMul& p) {
  const std::int64_t m = p.transpose_a ? p.a.cols : p.a.rows, k = p.transpose_a ? p.a.rows : p.a.cols;
  const std::int64_t n = p.transpose_b ? p.b.rows : p.b.cols, depth_b = p.transpose_b ? p.b.cols : p.b.rows;
  if (k != depth_b || p.c.rows != m || p.c.cols != n || p.a.dtype != p.b.dtype) {
    fail(ErrorKind::internal, "matmul: shapes do not fit: [{}, {}] x [{}, {}] -> [{}, {}]", m, k, depth_b, n,
         p.c.rows, p.c.cols);
  }
  LODE_ASSERT(p.bias.data == nullptr || (p.bias.dtype == DType::f32 && p.bias.rows == 1 && p.bias.cols == n));
}

// Nothing to sum over: c = bias (+ c).
void only_bias(const MatMul& p) {
  const float* bias = p.bias.data != nullptr ? p.bias.row<float>(0) : nullptr;
  for (std::int64_t r = 0; r < p.c.rows; ++r) {
    for (std::int64_t c = 0; c < p.c.cols; ++c) {
      const float value = bias != nullptr ? bias[c] : 0.0f;
      if (p.c.dtype == DType::f32) {
        float& out = p.c.row<float>(r)[c];
        out = p.accumulate ? out + value : value;
      } else {
        bf16& out = p.c.row<bf16>(r)[c];
        out = to_bf16(p.accumulate ? to_f32(out) + value : value);
      }
    }
  }
}

bool native_bf16() {
  static const bool native = [] {
    constexpr auto kWanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kWanted) == kWanted;
  }();
  return native;
}

double best_gflops(KernelContext& context, Memory& memory, DType dtype, std::int64_t size, bool packed,
                   int runs) {
  const int threads = usable_threads(context);
  const ThreadScope scope(threads);
  const auto primitive = find_primitive({.m = size,
                                         .n = size,
                                         .k = size,
                                         .a_stride = size,
                                         .b_stride = size,
                                         .c_stride = size,
                                         .transpose_a = false,
                                         .transpose_b = true,
                                         .in = dtype,
                                         .out = dtype,
                                         .bias = false,
                                         .accumulate = false,
                                         .packed_b = packed,
                                         .threads = threads});
  if (primitive->reference) return 0;
  const auto filled = [&memory](std::size_t bytes) {
    auto storage = memory.allocate(bytes, MemoryTag::workspace);
    if (!Rehearsal::active()) std::fill_n(storage->data(), bytes, std::byte{0x3c});  // 0.0115 in f32 and bf16
    return storage;
  };
  const auto a = filled(primitive->a.get_size()), b = filled(primitive->b.get_size());
  const auto c = filled(primitive->c.get_size()), scratch = filled(primitive->scratch.get_size());
  if (Rehearsal::active()) return 0;
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    execute(*primitive, a->data(), b->data(), nullptr, c->data(), scratch->data());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const double edge = static_cast<double>(size);
    best = std::max(best, 2e-9 * edge * edge * edge / seconds.count());
  }
  return best;
}

}  // namespace

void matmul(KernelContext& context, const MatMul& product) {
  check(product);
  if (product.c.empty()) return;
  if (product.a.empty()) return only_bias(product);
  if (matvec_fits(product)) return matvec(context, product);
  if (narrow_fits(product)) return narrow_matmul(context, product);
  const bool narrow = product.a.dtype == DType::bf16 || product.c.dtype == DType::bf16;
  if (!narrow) return multiply_f32(context, product);
  if (product.a.dtype == DType::bf16 && native_bf16() && multiply(context, product)) return;
  multiply_in_panels(context, product);
}

MatMulPath bf16_matmul_path() {
  if (native_bf16()) return {true, "bf16 dot products", "the processor has them and oneDNN uses them"};
  return {false, "widened to f32",
          "oneDNN finds no AVX512_BF16 here, without which its bf16 products are slower than f32"};
}

std::string matmul_library_version() {
  const dnnl_version_t* version = dnnl_version();
  return format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

double measure_matmul_peak(KernelContext& context, Memory& memory, DType dtype, bool thorough) {
  const DType measured = dtype == DType::bf16 && !native_bf16() ? DType::f32 : dtype;
  double best = 0;
  for (const bool packed : {true, false}) {
    best = std::max(best, best_gflops(context, memory, measured, 2048, packed, 8));
    if (thorough) best = std::max(best, best_gflops(context, memory, measured, 4096, packed, 4));
  }
  return best;
}

}  // namespace lode
