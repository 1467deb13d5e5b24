// Modules that hold matrices: a product with one or several logical parts (q | k | v, gate | up), the table
// of token embeddings, the head. Each carries the adapters that the list's policy gives it.
#pragma once

#include <string>
#include <vector>

#include "nn/parameter.h"
#include "ops/linear_cross_entropy.h"
#include "ops/lora.h"

namespace lode {

// The low-rank pairs beside one matrix. Parts of one product share the product with A; with dropout each has
// its own, since each has a mask of its own, as in PEFT.
class Lora {
 public:
  struct Part {
    std::string module;
    std::int64_t rows;      // of the output
    std::size_t parameter;  // index of the base parameter in the list
  };
  Lora() = default;
  Lora(ParameterList& parameters, const std::vector<Part>& parts, std::int64_t cols, ModuleKind kind);

  bool active(const Context& context) const { return !groups_.empty() && context.adapters; }
  // scale * dropout(x) A^T of each group of parts that share a product, [T, sum of their ranks].
  std::vector<Value> down(Context& context, const Value& x, const Batch& batch) const;
  std::vector<Value> down(Context& context, const Value& x) const;  // without dropout
  // y + z B^T; y as add_low_rank wants it.
  Value add(Context& context, Value y, const std::vector<Value>& z) const;
  Weight* first_b() const { return groups_.front().parts.front().b; }

 private:
  struct Group {
    Weight* a = nullptr;
    std::vector<LowRankPart> parts;
    std::vector<ScaledPart> scales;
    std::string site;  // of the dropout
  };
  std::vector<Group> groups_;
  float dropout_ = 0;
};

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
  Lora lora_;
};

class Embedding {
 public:
  Embedding() = default;
  // scale multiplies the rows that are looked up (Gemma).
  Embedding(ParameterList& parameters, const std::string& name, std::int64_t vocabulary, std::int64_t width,
            const Init& init, float scale = 1);

  // [T, width]; positions as ops/embedding.h. noise: NEFTune's alpha, in training.
  Value operator()(Context& context, const Batch& batch, Weight* positions, float noise) const;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  Weight* weight_ = nullptr;
  Weight *lora_a_ = nullptr, *lora_b_ = nullptr;  // A [V, rank], B [width, rank]
  float scale_ = 1, lora_scale_ = 1;
};

class Head {
 public:
  Head() = default;
  Head(ParameterList& parameters, const std::string& name, std::int64_t vocabulary, std::int64_t width,
       const Init& init);
  // Reads the embedding's base values; `name` is what adapters call the head.
  Head(ParameterList& parameters, const std::string& name, const Embedding& tied);

  // As ops/linear_cross_entropy.h.
  TokenLosses loss(Context& context, Value hidden, const Batch& batch, float loss_scale) const;
  // Logits f32 [n, vocabulary] of n rows, without a gradient.
  Tensor logits(Context& context, const Tensor& hidden) const;

 private:
  void add_lora(ParameterList& parameters, const std::string& name, std::size_t base);

  Weight* weight_ = nullptr;
  Lora lora_;
};

// Building parameters: a matrix of Hugging Face's name, a vector (of a norm, a bias), a weight's bias name.
Parameter matrix_parameter(std::string name, std::int64_t rows, std::int64_t cols, const Init& init,
                           ModuleKind kind = ModuleKind::linear);
Parameter vector_parameter(std::string name, std::int64_t size, InitKind kind);
std::string bias_name(const std::string& weight);

}  // namespace lode
