#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cpu/optimizer_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cc"
#include "kernels/cpu/weight_simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

void adamw_block(const AdamWStep& a, const Blocks::Block& at) {
  const auto begin = [&](const auto& view) { return view.template row<float>(at.row) + at.begin; };
  const float* grad = begin(a.grad);
  float* exp_avg = begin(a.exp_avg);
  float* exp_avg_sq = begin(a.exp_avg_sq);
  const auto constant = [](double x) { return static_cast<float>(x); };
  const float b1 = constant(a.beta1), rest1 = constant(1.0 - a.beta1);
  const float b2 = constant(a.beta2), rest2 = constant(1.0 - a.beta2);
  const float decay = constant(1.0 - a.lr * a.weight_decay), rate = constant(a.lr / a.bias_correction1);
  const float root = constant(1.0 / std::sqrt(a.bias_correction2)), eps = constant(a.eps);
  const float grad_scale = constant(a.grad_scale);
  for_weights(a.weight, at, [&](std::int64_t i, auto part, V weight) LODE_LAMBDA {
    const V g = hn::Mul(load(grad + i, part), set(grad_scale));
    const V m = hn::MulAdd(set(rest1), g, hn::Mul(set(b1), load(exp_avg + i, part)));
    const V v = hn::MulAdd(hn::Mul(set(rest2), g), g, hn::Mul(set(b2), load(exp_avg_sq + i, part)));
    const V step = hn::Div(m, hn::MulAdd(hn::Sqrt(v), set(root), set(eps)));
    store(m, exp_avg + i, part);
    store(v, exp_avg_sq + i, part);
    return hn::NegMulAdd(set(rate), step, hn::Mul(weight, set(decay)));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {

HWY_EXPORT(adamw_block);

void adamw_step(KernelContext& context, const AdamWStep& a) {
  const Blocks blocks = blocks_of(a.weight, {a.grad, a.exp_avg, a.exp_avg_sq});
  const auto step = HWY_DYNAMIC_DISPATCH(adamw_block);
  for_blocks(context, blocks, [&](const Blocks::Block& at) { step(a, at); });
}

}  // namespace lode
#endif  // HWY_ONCE
