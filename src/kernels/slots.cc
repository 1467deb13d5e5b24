// The slots, empty; back-end files fill them.
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"

namespace lode {

constinit KernelSlot<void(const NormForward&)> norm_forward("norm_forward");
constinit KernelSlot<void(const NormBackward&)> norm_backward("norm_backward");
constinit KernelSlot<void(const RotaryApply&)> rotary_apply("rotary_apply");
constinit KernelSlot<void(GateKind, ConstView, View)> gated_forward("gated_forward");
constinit KernelSlot<void(GateKind, ConstView, ConstView, View)> gated_backward("gated_backward");
constinit KernelSlot<void(GeluKind, ConstView, View)> gelu_forward("gelu_forward");
constinit KernelSlot<void(GeluKind, ConstView, ConstView, View)> gelu_backward("gelu_backward");
constinit KernelSlot<void(std::span<const std::int32_t>, ConstView, float, bool, View)> embedding_forward(
    "embedding_forward");
constinit KernelSlot<void(std::span<const std::int32_t>, ConstView, float, View)> embedding_backward(
    "embedding_backward");
constinit KernelSlot<void(const DropoutApply&)> dropout_apply("dropout_apply");
constinit KernelSlot<void(const CrossEntropyRows&)> cross_entropy_rows("cross_entropy_rows");
constinit KernelSlot<void(ConstView, View)> add_inplace("add_inplace");
constinit KernelSlot<void(ConstView, ConstView, View)> add_rows("add_rows");
constinit KernelSlot<void(ConstView, bool, View)> sum_rows("sum_rows");
constinit KernelSlot<void(const AttentionForward&)> attention_forward("attention_forward");
constinit KernelSlot<void(const AttentionBackward&)> attention_backward("attention_backward");
constinit KernelSlot<void(const AttentionDecode&)> attention_decode("attention_decode");

}  // namespace lode
