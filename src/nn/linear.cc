#include "nn/linear.h"

#include <algorithm>
#include <cmath>

#include "autograd/profile.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/weight_product.h"

namespace lode {

std::string bias_name(const std::string& weight) {
  constexpr std::string_view kWeight = ".weight";
  LODE_ASSERT(weight.ends_with(kWeight));
  return weight.substr(0, weight.size() - kWeight.size()) + ".bias";
}

Parameter matrix_parameter(std::string name, std::int64_t rows, std::int64_t cols, const Init& init,
                           ModuleKind kind) {
  return {.name = std::move(name), .rows = rows, .cols = cols, .init = init, .kind = kind};
}

Parameter vector_parameter(std::string name, std::int64_t size, InitKind kind) {
  return {.name = std::move(name),
          .cols = size,
          .vector = true,
          .init = {kind},
          .decay = false,
          .kind = ModuleKind::norm};
}

namespace {

// A file's ranks decide about memory, whatever else is in it.
void check_rank(const ParameterList& parameters, const std::string& module, std::int64_t rank,
                std::int64_t most) {
  if (rank <= most) return;
  fail(parameters.policy().adapter->from_file ? ErrorKind::data : ErrorKind::usage,
       "{}: a LoRA rank of {}: the matrix has no side of more than {}", module, rank, most);
}

}  // namespace

Lora::Lora(ParameterList& parameters, const std::vector<Part>& parts, std::int64_t cols, ModuleKind kind) {
  // Kaiming's uniform bound with a = sqrt(5), as torch initialises its linear layers.
  const Init init_a{InitKind::uniform, 1 / std::sqrt(static_cast<double>(cols))};
  std::vector<std::vector<Parameter>> as;  // of each group
  std::vector<LoraPair> pairs;
  std::int64_t begin = 0, offset = 0;
  for (const Part& part : parts) {
    if (const auto plan = parameters.plan_lora(part.module, kind)) {
      if (plan->dropout < 0 || plan->dropout >= 1)
        fail(ErrorKind::usage, "lora_dropout is {}: it must be in [0, 1)", plan->dropout);
      check_rank(parameters, part.module, plan->rank, std::max(part.rows, cols));
      dropout_ = plan->dropout;
      if (groups_.empty() || dropout_ > 0) {
        groups_.emplace_back();
        as.emplace_back();
        offset = 0;
      }
      as.back().push_back(matrix_parameter(part.module + ".lora_A.weight", plan->rank, cols, init_a, kind));
      const Init zeros{InitKind::zeros};
      Weight* b = parameters.add_lora(
          {matrix_parameter(part.module + ".lora_B.weight", part.rows, plan->rank, zeros, kind)});
      groups_.back().parts.push_back({b, begin, offset});
      groups_.back().scales.push_back({offset, plan->rank, plan->scale});
      pairs.push_back({.module = part.module,
                       .base = part.parameter,
                       .b = parameters.all().size() - 1,
                       .rank = plan->rank,
                       .alpha = plan->alpha,
                       .scale = plan->scale,
                       .dropout = plan->dropout});
      offset += plan->rank;
    }
    begin += part.rows;
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i].a = parameters.all().size() + i;
    parameters.add_pair(pairs[i]);
  }
  for (std::size_t i = 0; i < as.size(); ++i) {
    groups_[i].site = as[i].front().name;
    groups_[i].a = parameters.add_lora(std::move(as[i]));
  }
}

std::vector<Value> Lora::down(Context& context, const Value& x, const Batch& batch) const {
  std::vector<Value> z;
  for (const Group& group : groups_) {
    const Value dropped = dropout(context, x, batch, dropout_, group.site);
    z.push_back(scale_parts(context, linear(context, dropped, *group.a), group.scales));
  }
  return z;
}

std::vector<Value> Lora::down(Context& context, const Value& x) const {
  std::vector<Value> z;
  for (const Group& group : groups_)
    z.push_back(scale_parts(context, linear(context, x, *group.a), group.scales));
  return z;
}

Value Lora::add(Context& context, Value y, const std::vector<Value>& z) const {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    y = add_low_rank(context, std::move(y), z[i], groups_[i].parts);
  return y;
}

Linear::Linear(ParameterList& parameters, const LinearSpec& spec) {
  std::vector<Parameter> weights, biases;
  std::vector<Lora::Part> lora_parts;
  const std::size_t first = parameters.all().size();
  for (const LinearPart& part : spec.parts) {
    weights.push_back(matrix_parameter(part.name, part.rows, spec.cols, spec.init));
    weights.back().layout = spec.layout;
    biases.push_back(vector_parameter(bias_name(part.name), part.rows, InitKind::zeros));
    biases.back().kind = ModuleKind::linear;
    lora_parts.push_back({weights.back().module(), part.rows, first + lora_parts.size()});
  }
  weight_ = parameters.add(std::move(weights));
  if (spec.bias) bias_ = parameters.add(std::move(biases));
  lora_ = Lora(parameters, lora_parts, spec.cols, ModuleKind::linear);
}

Value Linear::operator()(Context& context, const Value& x, const Batch& batch) const {
  if (!lora_.active(context)) return linear(context, x, *weight_, bias_);
  const std::vector<Value> z = lora_.down(context, x, batch);
  return lora_.add(context, linear(context, x, *weight_, bias_), z);
}

Embedding::Embedding(ParameterList& parameters, const std::string& name, std::int64_t vocabulary,
                     std::int64_t width, const Init& init, float scale)
    : name_(name), scale_(scale) {
  const std::size_t base = parameters.all().size();
  weight_ = parameters.add({matrix_parameter(name, vocabulary, width, init, ModuleKind::embedding)});
  const std::string module = parameters.all()[base].module();
  const auto plan = parameters.plan_lora(module, ModuleKind::embedding);
  if (!plan) return;
  check_rank(parameters, module, plan->rank, std::max(vocabulary, width));
  Parameter a = matrix_parameter(module + ".lora_embedding_A", vocabulary, plan->rank, {InitKind::zeros},
                                 ModuleKind::embedding);
  a.layout = FileLayout::transposed;
  lora_a_ = parameters.add_lora({std::move(a)});
  lora_b_ = parameters.add_lora({matrix_parameter(module + ".lora_embedding_B", width, plan->rank,
                                                  {InitKind::normal, 1.0}, ModuleKind::embedding)});
  lora_scale_ = plan->scale;
  const std::size_t last = parameters.all().size();
  parameters.add_pair({.module = module,
                       .base = base,
                       .a = last - 2,
                       .b = last - 1,
                       .rank = plan->rank,
                       .alpha = plan->alpha,
                       .scale = plan->scale,
                       .embedding = true});
}

Value Embedding::operator()(Context& context, const Batch& batch, Weight* positions, float noise) const {
  // Families that scale round the factor to the activations' dtype first.
  const float scale = context.dtype == DType::bf16 ? to_f32(to_bf16(scale_)) : scale_;
  Value y;
  if (lora_a_ != nullptr && context.adapters) {
    const Value z = embedding(context, batch, *lora_a_, nullptr, lora_scale_ * scale);
    y = add_low_rank(context, embedding(context, batch, *weight_, positions, scale), z, {{lora_b_, 0, 0}});
  } else {
    y = embedding(context, batch, *weight_, positions, scale);
  }
  add_embedding_noise(context, y, batch, noise);
  return y;
}

Head::Head(ParameterList& parameters, const std::string& name, std::int64_t vocabulary, std::int64_t width,
           const Init& init) {
  const std::size_t base = parameters.all().size();
  weight_ = parameters.add({matrix_parameter(name, vocabulary, width, init, ModuleKind::head)});
  add_lora(parameters, name, base);
}

Head::Head(ParameterList& parameters, const std::string& name, const Embedding& tied) {
  const std::string module = name.substr(0, name.rfind('.'));
  weight_ = parameters.share(tied.name(), module, ModuleKind::head);
  add_lora(parameters, name, parameters.index_of(tied.name()));
}

void Head::add_lora(ParameterList& parameters, const std::string& name, std::size_t base) {
  lora_ = Lora(parameters, {{name.substr(0, name.rfind('.')), weight_->rows(), base}}, weight_->cols(),
               ModuleKind::head);
}

TokenLosses Head::loss(Context& context, Value hidden, const Batch& batch, float loss_scale) const {
  if (!lora_.active(context))
    return linear_cross_entropy(context, std::move(hidden), *weight_, batch, loss_scale);
  const Value z = lora_.down(context, hidden, batch).front();
  return linear_cross_entropy(context, std::move(hidden), *weight_, batch, loss_scale, 0,
                              {z, lora_.first_b()});
}

Tensor Head::logits(Context& context, const Tensor& hidden) const {
  LODE_ASSERT(context.tape == nullptr);
  Tensor out(context.memory, MemoryTag::activations, DType::f32, hidden.rows(), weight_->rows());
  {
    OpTimer timer(context, "head",
                  2.0 * static_cast<double>(hidden.rows() * weight_->rows() * weight_->cols()));
    WeightProduct(context, *weight_).forward(hidden.view(), {}, out.view());
  }
  if (!lora_.active(context)) return out;
  return lora_.add(context, {std::move(out)}, lora_.down(context, {hidden})).data;
}

}  // namespace lode
