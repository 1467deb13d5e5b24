// What every op gets: where memory comes from, how kernels run, the tape (if any), the precision and the
// current step. Nothing here is global, so that several models or ranks live in one process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/facts.h"
#include "core/memory.h"
#include "kernels/kernel.h"

namespace lode {

class Tape;
class Profile;
class GradientListener;
class GraphCapture;
class Offload;
struct NonFinite;

struct Context {
  Memory& memory;
  Facts& facts;
  KernelContext kernel;
  DType dtype = DType::f32;               // of activations and of the weights that products read: f32 or bf16
  Tape* tape = nullptr;                   // ops record on it; without one they just compute
  Profile* profile = nullptr;             // times each op when set
  GradientListener* gradients = nullptr;  // hears of gradients that are final
  GraphCapture* capture = nullptr;        // micro-steps of training replay their memory when set
  Offload* offload = nullptr;             // what ops save waits in its file when set
  NonFinite* search = nullptr;            // every op's output is searched for NaN and infinity when set
  std::uint64_t seed = 0;                 // of dropout and other noise
  std::int64_t step = 0;                  // of the optimizer, for the same
  bool training = false;                  // dropout is active
  bool adapters = true;                   // off: the base model alone
  std::string scope;                      // "layers.3.attention": where ops are running, for messages

  Tensor activation(std::int64_t rows, std::int64_t cols) {
    return Tensor(memory, MemoryTag::activations, dtype, rows, cols);
  }
  Tensor statistic(std::int64_t count) {
    return Tensor(memory, MemoryTag::activations, DType::f32, 1, count);
  }
};

// Appends a part to the context's scope for its lifetime.
class ScopedName {
 public:
  ScopedName(Context& context, std::string_view part) : context_(context), length_(context.scope.size()) {
    if (length_ != 0) context.scope += '.';
    context.scope += part;
  }
  ~ScopedName() { context_.scope.resize(length_); }
  ScopedName(const ScopedName&) = delete;
  ScopedName& operator=(const ScopedName&) = delete;

 private:
  Context& context_;
  std::size_t length_;
};

// The first tensor found with a NaN or an infinity: which op made it, and in which row (token) of the stream.
struct NonFinite {
  bool found = false;
  std::string where;      // "layers.3.attention: linear (backward)"
  std::int64_t row = -1;  // of the tensor: the token, when the tensor has a row per token
  std::int64_t col = -1;
  bool per_token = false;
};

}  // namespace lode
