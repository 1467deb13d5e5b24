// A linear module: one product whose weight holds one or several logical matrices (q | k | v, gate | up),
// with or without a bias.
#pragma once

#include <string>
#include <vector>

#include "autograd/tape.h"
#include "nn/parameter.h"
#include "ops/batch.h"

namespace lode {

struct LinearPart {
  std::string name;  // of the weight in Hugging Face's files: "....weight"; its bias is "....bias"
  std::int64_t rows;
};

struct LinearSpec {
  std::vector<LinearPart> parts;  // stacked along the output
  std::int64_t cols = 0;
  bool bias = false;
  FileLayout layout = FileLayout::same;
  Init init;
};

class Linear {
 public:
  Linear() = default;
  // Adds its parameters to the list, which must outlive it.
  Linear(ParameterList& parameters, const LinearSpec& spec);

  // x [T, cols] -> [T, sum of rows]. The batch must live until backward has run.
  Value operator()(Context& context, const Value& x, const Batch& batch) const;

 private:
  Weight* weight_ = nullptr;
  Weight* bias_ = nullptr;
};

// Building parameters: a matrix of Hugging Face's name, a vector (of a norm, a bias), a weight's bias name.
Parameter matrix_parameter(std::string name, std::int64_t rows, std::int64_t cols, const Init& init);
Parameter vector_parameter(std::string name, std::int64_t size, InitKind kind);
std::string bias_name(const std::string& weight);

}  // namespace lode
