// SGD, Lion, and the moments that other optimizers keep.
#include "kernels/cpu/optimizer_blocks.h"
#include "kernels/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer_momentum.cc"
#include "kernels/cpu/weight_simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

float constant(double x) {
  return static_cast<float>(x);
}

template <class View>
auto* begin_of(const View& view, const Blocks::Block& at) {
  return view.template row<float>(at.row) + at.begin;
}

void sgd_block(const SgdStep& a, const Blocks::Block& at) {
  const float* grad = begin_of(a.grad, at);
  float* buffer = a.momentum_buffer.data == nullptr ? nullptr : begin_of(a.momentum_buffer, at);
  const float scale = constant(a.grad_scale), decay = constant(a.weight_decay), lr = constant(a.lr);
  const float keep = a.first ? 0.0f : constant(a.momentum);
  const float add = a.first ? 1.0f : constant(1.0 - a.dampening);
  const float momentum = constant(a.momentum);
  for_weights(a.weight, at, [&](std::int64_t i, auto part, V before) LODE_LAMBDA {
    const V g = hn::MulAdd(set(decay), before, hn::Mul(set(scale), load(grad + i, part)));
    V step = g;
    if (buffer != nullptr) {
      const V old = keep == 0.0f ? zero() : load(buffer + i, part);
      const V now = hn::MulAdd(set(keep), old, hn::Mul(set(add), g));
      store(now, buffer + i, part);
      step = a.nesterov ? hn::MulAdd(set(momentum), now, g) : now;
    }
    return hn::NegMulAdd(set(lr), step, before);
  });
}

void lion_block(const LionStep& a, const Blocks::Block& at) {
  const float* grad = begin_of(a.grad, at);
  float* exp_avg = begin_of(a.exp_avg, at);
  const float b1 = constant(a.beta1), rest1 = constant(1.0 - a.beta1);
  const float b2 = constant(a.beta2), rest2 = constant(1.0 - a.beta2);
  const float decay = constant(1.0 - a.lr * a.weight_decay), lr = constant(a.lr);
  const float scale = constant(a.grad_scale);
  for_weights(a.weight, at, [&](std::int64_t i, auto part, V weight) LODE_LAMBDA {
    const V g = hn::Mul(load(grad + i, part), set(scale)), m = load(exp_avg + i, part);
    const V direction = hn::MulAdd(set(rest1), g, hn::Mul(set(b1), m));
    const V step = hn::IfThenElseZero(hn::Ne(direction, zero()), hn::CopySign(set(lr), direction));
    store(hn::MulAdd(set(rest2), g, hn::Mul(set(b2), m)), exp_avg + i, part);
    return hn::Sub(hn::Mul(set(decay), weight), step);
  });
}

void momentum_block(const MomentumStep& a, const Blocks::Block& at) {
  const float* grad = begin_of(a.grad, at);
  float* momentum = begin_of(a.momentum, at);
  float* output = a.output.data == nullptr ? nullptr : begin_of(a.output, at);
  const float scale = constant(a.grad_scale), keep = constant(a.keep), add = constant(a.add);
  const float out_grad = constant(a.out_grad), out_momentum = constant(a.out_momentum);
  for_vectors(at.n, [&](std::int64_t i, auto part) LODE_LAMBDA {
    const V g = hn::Mul(load(grad + i, part), set(scale));
    const V m = hn::MulAdd(set(add), g, hn::Mul(set(keep), load(momentum + i, part)));
    store(m, momentum + i, part);
    if (output != nullptr) {
      store(hn::MulAdd(set(out_momentum), m, hn::Mul(set(out_grad), g)), output + i, part);
    }
  });
}

void direction_block(const AdamDirection& a, const Blocks::Block& at) {
  const float* grad = begin_of(a.grad, at);
  float* exp_avg = begin_of(a.exp_avg, at);
  float* exp_avg_sq = begin_of(a.exp_avg_sq, at);
  float* direction = begin_of(a.direction, at);
  const float b1 = constant(a.beta1), rest1 = constant(1.0 - a.beta1);
  const float b2 = constant(a.beta2), rest2 = constant(1.0 - a.beta2);
  const float scale = constant(a.grad_scale), eps = constant(a.eps);
  for_vectors(at.n, [&](std::int64_t i, auto part) LODE_LAMBDA {
    const V g = hn::Mul(load(grad + i, part), set(scale));
    const V m = hn::MulAdd(set(rest1), g, hn::Mul(set(b1), load(exp_avg + i, part)));
    const V v = hn::MulAdd(hn::Mul(set(rest2), g), g, hn::Mul(set(b2), load(exp_avg_sq + i, part)));
    store(m, exp_avg + i, part);
    store(v, exp_avg_sq + i, part);
    store(hn::Div(m, hn::Add(hn::Sqrt(v), set(eps))), direction + i, part);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {

HWY_EXPORT(sgd_block);
HWY_EXPORT(lion_block);
HWY_EXPORT(momentum_block);
HWY_EXPORT(direction_block);

void sgd_step(KernelContext& context, const SgdStep& a) {
  const Blocks blocks = blocks_of(a.weight, {a.grad, a.momentum_buffer, ConstView{}});
  const auto step = HWY_DYNAMIC_DISPATCH(sgd_block);
  for_blocks(context, blocks, [&](const Blocks::Block& at) { step(a, at); });
}

void lion_step(KernelContext& context, const LionStep& a) {
  const Blocks blocks = blocks_of(a.weight, {a.grad, a.exp_avg, ConstView{}});
  const auto step = HWY_DYNAMIC_DISPATCH(lion_block);
  for_blocks(context, blocks, [&](const Blocks::Block& at) { step(a, at); });
}

void momentum_step(KernelContext& context, const MomentumStep& a) {
  const Blocks blocks{a.grad, a.momentum, or_other(a.output, a.grad)};
  const auto step = HWY_DYNAMIC_DISPATCH(momentum_block);
  for_blocks(context, blocks, [&](const Blocks::Block& at) { step(a, at); });
}

void adam_direction(KernelContext& context, const AdamDirection& a) {
  const Blocks blocks{a.grad, a.exp_avg, a.exp_avg_sq, a.direction};
  const auto step = HWY_DYNAMIC_DISPATCH(direction_block);
  for_blocks(context, blocks, [&](const Blocks::Block& at) { step(a, at); });
}

}  // namespace lode
#endif  // HWY_ONCE
