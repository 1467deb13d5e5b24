#include "nn/linear.h"

#include "ops/linear.h"

namespace lode {

std::string bias_name(const std::string& weight) {
  constexpr std::string_view kWeight = ".weight";
  LODE_ASSERT(weight.ends_with(kWeight));
  return weight.substr(0, weight.size() - kWeight.size()) + ".bias";
}

Parameter matrix_parameter(std::string name, std::int64_t rows, std::int64_t cols, const Init& init) {
  return {.name = std::move(name), .rows = rows, .cols = cols, .init = init};
}

Parameter vector_parameter(std::string name, std::int64_t size, InitKind kind) {
  return {.name = std::move(name), .cols = size, .vector = true, .init = {kind}, .decay = false};
}

Linear::Linear(ParameterList& parameters, const LinearSpec& spec) {
  std::vector<Parameter> weights, biases;
  for (const LinearPart& part : spec.parts) {
    weights.push_back(matrix_parameter(part.name, part.rows, spec.cols, spec.init));
    weights.back().layout = spec.layout;
    biases.push_back(vector_parameter(bias_name(part.name), part.rows, InitKind::zeros));
  }
  weight_ = parameters.add(std::move(weights));
  if (spec.bias) bias_ = parameters.add(std::move(biases));
}

Value Linear::operator()(Context& context, const Value& x, const Batch&) const {
  return linear(context, x, *weight_, bias_);
}

}  // namespace lode
