// Shapes: T tokens, D hidden, H query heads, K key/value heads, E head size, I width of the MLP, V
// vocabulary.
#include "nn/decoder.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "autograd/recompute.h"
#include "nn/rotary_table.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/dropout.h"

namespace lode {

namespace {

WeightPolicy with_layers(WeightPolicy policy, std::int64_t layers) {
  if (policy.freeze) policy.freeze->num_layers = layers;
  return policy;
}

GateKind gate_kind(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return GateKind::silu;
    case Activation::gelu_erf:
      return GateKind::gelu_erf;
    case Activation::gelu_tanh:
      return GateKind::gelu_tanh;
  }
  return GateKind::silu;
}

double counted_tokens(const Segments& segments) {
  double tokens = 0;
  for (const Segment& segment : segments.list()) tokens += segment.padding ? 0 : segment.length;
  return tokens;
}

// Runs before the nodes of the layers.
void check_in_backward(Context& context, const Batch& batch) {
  const auto check = [&batch, generation = batch.segments().generation()](Context&, Tape&) {
    if (batch.segments().generation() != generation)
      fail(ErrorKind::internal,
           "the batch has changed between forward and backward: its segments are others");
  };
  context.tape->record(context, "segments", kNoGradient, check);
}

Segments one_sample(std::int64_t length) {
  const std::int32_t lengths[] = {static_cast<std::int32_t>(length)};
  const std::int64_t samples[] = {0};
  return Segments(lengths, samples, lengths[0]);
}

}  // namespace

Decoder::Decoder(Context& context, const DecoderSpec& spec, const DecoderNames& names, WeightPolicy policy)
    : spec_(spec), parameters_(context.memory, with_layers(std::move(policy), spec.layers)) {
  const Init init{InitKind::normal, spec.init_deviation};
  embedding_ = Embedding(parameters_, names.embedding, spec.vocab_size, spec.hidden, init,
                         static_cast<float>(spec.embedding_scale));
  if (spec.position == PositionKind::learned) {
    positions_ = parameters_.add(
        {matrix_parameter(names.positions, spec.max_positions, spec.hidden, init, ModuleKind::positions)});
  }
  for (std::int64_t i = 0; i < spec.layers; ++i) add_layer(names, i);
  final_norm_ = add_norm_parameters(names.final_norm, spec.hidden);
  head_ = spec.tied_head ? Head(parameters_, names.head, embedding_)
                         : Head(parameters_, names.head, spec.vocab_size, spec.hidden, init);
  parameters_.check_policy();
}

NormParameters Decoder::add_norm_parameters(const std::string& name, std::int64_t size) {
  const InitKind init = spec_.norm_offset == 0 ? InitKind::ones : InitKind::zeros;
  NormParameters norm{spec_.norm, spec_.norm_eps, parameters_.add({vector_parameter(name, size, init)})};
  norm.offset = spec_.norm_offset;
  if (spec_.norm_bias)
    norm.bias = parameters_.add({vector_parameter(bias_name(name), size, InitKind::zeros)});
  return norm;
}

Linear Decoder::add_linear(const DecoderNames& names, std::vector<LinearPart> parts, std::int64_t cols,
                           bool with_bias, const Init& init) {
  return Linear(parameters_, {std::move(parts), cols, with_bias, names.linear_layout, init});
}

void Decoder::add_layer(const DecoderNames& names, std::int64_t index) {
  const Init init{InitKind::normal, spec_.init_deviation};
  Init residual_init = init;
  if (spec_.scale_residual_init)
    residual_init.deviation /= std::sqrt(2.0 * static_cast<double>(spec_.layers));
  const std::int64_t q_dim = spec_.heads * spec_.head_dim, kv_dim = spec_.kv_heads * spec_.head_dim;
  const auto named = [index](const std::string& pattern) { return format(pattern, index); };

  Layer layer;
  layer.spec = spec_.layer(index);
  layer.attention_norm = add_norm_parameters(named(names.attention_norm), spec_.hidden);
  std::vector<LinearPart> qkv{{named(names.q), q_dim}, {named(names.k), kv_dim}, {named(names.v), kv_dim}};
  if (!names.qkv.empty()) qkv = {{named(names.qkv), q_dim + 2 * kv_dim}};
  layer.qkv = add_linear(names, qkv, spec_.hidden, spec_.qkv_bias, init);
  layer.output =
      add_linear(names, {{named(names.output), spec_.hidden}}, q_dim, spec_.output_bias, residual_init);

  if (spec_.head_norms) {
    layer.q_norm = add_norm_parameters(named(names.q_norm), spec_.head_dim);
    layer.k_norm = add_norm_parameters(named(names.k_norm), spec_.head_dim);
  }
  if (spec_.post_norms) {
    layer.attention_post_norm = add_norm_parameters(named(names.attention_post_norm), spec_.hidden);
    layer.mlp_post_norm = add_norm_parameters(named(names.mlp_post_norm), spec_.hidden);
  }

  layer.mlp_norm = add_norm_parameters(named(names.mlp_norm), spec_.hidden);
  std::vector<LinearPart> up;
  if (spec_.mlp == MlpKind::gated) up.push_back({named(names.gate), spec_.intermediate});
  up.push_back({named(names.up), spec_.intermediate});
  layer.up = add_linear(names, up, spec_.hidden, spec_.mlp_bias, init);
  layer.down = add_linear(names, {{named(names.down), spec_.hidden}}, spec_.intermediate, spec_.mlp_bias,
                          residual_init);
  layers_.push_back(layer);
}

void Decoder::initialise(Context& context, std::uint64_t seed) {
  for (const Parameter& parameter : parameters_.all()) lode::initialise(context, parameter, seed);
  parameters_.reset_copies(context);
}

void Decoder::initialise_adapters(Context& context, std::uint64_t seed) {
  for (const Parameter& parameter : parameters_.all()) {
    if (parameter.role == ParameterRole::lora) lode::initialise(context, parameter, seed);
  }
}

SavePolicy Decoder::selective(bool chosen) const {
  return chosen && activations_.recompute == ActivationPolicy::Recompute::selective ? SavePolicy::recompute
                                                                                    : SavePolicy::keep;
}

Value Decoder::attend(Context& context, const Layer& layer, std::int64_t index, const Value& x_TD,
                      const Batch& batch, KvCache* cache) {
  const ScopedName scope(context, "attention");
  AttentionShape shape{spec_.heads, spec_.kv_heads, spec_.head_dim, static_cast<float>(spec_.attention_scale),
                       layer.spec.window};
  if (spec_.scale_by_inverse_layer) shape.scale /= static_cast<float>(index + 1);
  Value qkv = layer.qkv(context, x_TD, batch);
  if (spec_.head_norms) {
    qkv = norm_heads(context, std::move(qkv), spec_.heads, spec_.kv_heads, layer.q_norm, layer.k_norm);
  }
  if (spec_.position == PositionKind::rotary && layer.spec.rotary != LayerRotary::none) {
    const RotaryTable& table = layer.spec.rotary == LayerRotary::local ? local_rotary_ : rotary_;
    qkv = rotary(context, std::move(qkv), batch, table, spec_.heads + spec_.kv_heads, spec_.head_dim);
  }
  const Value o_THE = attention(context, qkv, batch, shape, cache, index, selective(activations_.attention),
                                [this](double flops) { recomputed_flops_ += flops; });
  Value out_TD = layer.output(context, o_THE, batch);
  if (spec_.post_norms) out_TD = add_norm(context, out_TD, nullptr, layer.attention_post_norm).y;
  return out_TD;
}

Value Decoder::mlp(Context& context, const Layer& layer, const Value& x_TD, const Batch& batch) {
  const ScopedName scope(context, "mlp");
  const Value up = layer.up(context, x_TD, batch);
  Value act_TI;
  if (spec_.mlp == MlpKind::gated) {
    act_TI = gated(context, up, gate_kind(spec_.activation), selective(activations_.mlp));
  } else {
    act_TI = gelu(context, up, spec_.activation == Activation::gelu_erf ? GeluKind::erf : GeluKind::tanh,
                  selective(activations_.mlp));
  }
  Value out_TD = layer.down(context, act_TI, batch);
  if (spec_.post_norms) out_TD = add_norm(context, out_TD, nullptr, layer.mlp_post_norm).y;
  return out_TD;
}

void Decoder::prepare_rotary(const Segments& segments, Memory& memory) {
  if (spec_.position != PositionKind::rotary) return;
  const auto used = [this](LayerRotary kind) {
    return std::ranges::any_of(layers_, [kind](const Layer& layer) { return layer.spec.rotary == kind; });
  };
  if (used(LayerRotary::global)) prepare_rotary_table(memory, spec_.rotary, segments, rotary_);
  if (used(LayerRotary::local)) prepare_rotary_table(memory, spec_.local_rotary, segments, local_rotary_);
}

const Batch& Decoder::batch_of_layer(const Batch& batch) {
  if (shares_segments_) return batch;
  ++segments_rebuilt_;
  return *rebuilt_.emplace_back(std::make_unique<Batch>(batch.rebuilt()));
}

Decoder::Flow Decoder::block(Context& context, std::int64_t index, Flow in, const Batch& shared,
                             KvCache* cache) {
  const Batch& batch = batch_of_layer(shared);
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const SavePolicy norms = selective(activations_.norms);
  AddNorm n =
      add_norm(context, in.h, in.delta.data.defined() ? &in.delta : nullptr, layer.attention_norm, norms);
  in.h = std::move(n.h);
  in.delta = attend(context, layer, index, n.y, batch, cache);
  in.delta = dropout(context, in.delta, batch, spec_.residual_dropout, format("layers.{}.attention", index));
  n = add_norm(context, in.h, &in.delta, layer.mlp_norm, norms);
  in.h = std::move(n.h);
  in.delta = mlp(context, layer, n.y, batch);
  in.delta = dropout(context, in.delta, batch, spec_.residual_dropout, format("layers.{}.mlp", index));
  return in;
}

Decoder::Flow Decoder::recomputed_block(Context& context, std::int64_t index, Flow in, const Batch& batch) {
  // Summed here and not by the block's norm: one tensor waits for the backward instead of two.
  if (in.delta.data.defined()) in.h = add(context, in.h, std::exchange(in.delta, {}));
  const Stretch stretch = [this, index, &batch](Context& c, const Value& h) {
    Flow out = block(c, index, {h, {}}, batch, nullptr);
    return std::vector<Value>{std::move(out.h), std::move(out.delta)};
  };
  const auto save = [offload = activations_.offload](const Tensor& h) {
    return offload != nullptr ? offload->put(h) : Saved(h);
  };
  const auto count = [this, index, &batch] {
    recomputed_flops_ += block_forward_flops(index, batch.segments());
  };
  std::vector<Value> out = recompute_later(context, stretch, in.h, save, count);
  return {std::move(out[0]), std::move(out[1])};
}

Value Decoder::forward(Context& context, const Batch& batch, KvCache* cache) {
  prepare_rotary(batch.segments(), context.memory);
  const std::size_t rebuilt_before = rebuilt_.size();
  const auto drop_rebuilt = [this, rebuilt_before](Context&, Tape&) { rebuilt_.resize(rebuilt_before); };
  // The last node to run.
  if (context.tape != nullptr && !shares_segments_)
    context.tape->record(context, "segments", kNoGradient, drop_rebuilt);
  Flow flow;
  {
    const ScopedName scope(context, "embedding");
    flow.h = dropout(context, embedding_(context, batch, positions_, embedding_noise_), batch,
                     spec_.embedding_dropout, "embedding");
  }
  const bool recomputes =
      context.tape != nullptr && activations_.recompute == ActivationPolicy::Recompute::full;
  const bool offloads = context.tape != nullptr && !recomputes && activations_.offload != nullptr;
  for (std::int64_t i = 0; i < spec_.layers; ++i) {
    const ScopedName scope(context, format("layers.{}", i));
    std::optional<OffloadedOps> offloaded;
    if (offloads) offloaded.emplace(context, *activations_.offload);
    flow = recomputes && i % activations_.every == 0 ? recomputed_block(context, i, std::move(flow), batch)
                                                     : block(context, i, std::move(flow), batch, cache);
  }
  if (context.tape == nullptr) rebuilt_.resize(rebuilt_before);
  if (cache != nullptr) cache->advance(batch.num_tokens());
  const ScopedName scope(context, "final_norm");
  Value y = add_norm(context, flow.h, flow.delta.data.defined() ? &flow.delta : nullptr, final_norm_).y;
  if (y.wants_gradient()) check_in_backward(context, batch);
  return y;
}

TokenLosses Decoder::loss(Context& context, const Batch& batch, float loss_scale) {
  Value hidden = forward(context, batch);
  const ScopedName scope(context, "head");
  return head_.loss(context, std::move(hidden), batch, loss_scale);
}

Tensor Decoder::last_logits(Context& context, const Value& hidden_TD) {
  return head_.logits(context, hidden_TD.data.slice_rows(hidden_TD.data.rows() - 1, 1));
}

double Decoder::layer_weights() const {
  const double q_dim = static_cast<double>(spec_.heads * spec_.head_dim);
  const double kv_dim = static_cast<double>(spec_.kv_heads * spec_.head_dim);
  const double d = static_cast<double>(spec_.hidden), i = static_cast<double>(spec_.intermediate);
  const double mlp_matrices = spec_.mlp == MlpKind::gated ? 3 : 2;
  return d * (q_dim + 2 * kv_dim) + q_dim * d + mlp_matrices * d * i;
}

double Decoder::head_weights() const {
  return static_cast<double>(spec_.vocab_size) * static_cast<double>(spec_.hidden);
}

double Decoder::block_forward_flops(std::int64_t index, const Segments& segments) const {
  double adapters = 0;
  for (const Parameter& parameter : parameters_.all()) {
    if (parameter.role == ParameterRole::lora && parameter.kind == ModuleKind::linear)
      adapters += static_cast<double>(parameter.numel()) / static_cast<double>(spec_.layers);
  }
  return 2 * counted_tokens(segments) * (layer_weights() + adapters) +
         attention_forward_flops(segments,
                                 {spec_.heads, spec_.kv_heads, spec_.head_dim, 1, spec_.layer(index).window});
}

double Decoder::attention_flops(const Segments& segments) const {
  double attention = 0;
  for (std::int64_t l = 0; l < spec_.layers; ++l) {
    attention += attention_forward_flops(
        segments, {spec_.heads, spec_.kv_heads, spec_.head_dim, 1, spec_.layer(l).window});
  }
  return 3 * attention;
}

double Decoder::training_flops(const Segments& segments, std::int64_t targets) const {
  const double tokens = counted_tokens(segments);
  const auto head_tokens = static_cast<double>(targets);
  // Forward and the gradient of the input for every weight; the gradient of the weight for those that are
  // trained; adapters beside.
  double flops =
      attention_flops(segments) +
      4 * (static_cast<double>(spec_.layers) * layer_weights() * tokens + head_weights() * head_tokens);
  for (const Parameter& parameter : parameters_.all()) {
    const bool is_head =
        parameter.kind == ModuleKind::head || (parameter.kind == ModuleKind::embedding && spec_.tied_head);
    if (parameter.vector || !parameter.trainable() || !(is_head || parameter.kind == ModuleKind::linear))
      continue;
    flops += (parameter.role == ParameterRole::lora ? 6.0 : 2.0) * static_cast<double>(parameter.numel()) *
             (is_head ? head_tokens : tokens);
  }
  return flops;
}

double Decoder::training_flops_per_token(std::int64_t sample_length) const {
  return training_flops(one_sample(sample_length), sample_length) / static_cast<double>(sample_length);
}

double Decoder::full_training_flops_per_token(std::int64_t sample_length) const {
  return 6 * (static_cast<double>(spec_.layers) * layer_weights() + head_weights()) +
         attention_flops(one_sample(sample_length)) / static_cast<double>(sample_length);
}

}  // namespace lode
