// The explicit tape. An op that records pushes one or more nodes; backward runs them in reverse,
// deterministically, and frees what a node saved as soon as it has run.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "autograd/saved.h"

namespace lode {

class Weight;
class GradientSink;

// Index of a value's gradient on the tape; kNoGradient: nobody wants it.
using GradientId = std::int32_t;
inline constexpr GradientId kNoGradient = -1;

// An activation and where its gradient goes.
struct Value {
  Tensor data;
  GradientId gradient = kNoGradient;
  std::shared_ptr<LaterTensor> later;  // how backward gets `data` when it is not to be kept; null: it is kept

  bool wants_gradient() const { return gradient != kNoGradient; }
  // What a node that needs `data` in its backward holds.
  Saved saved(Context& context) const { return later ? Saved(later) : save(context, data); }
};

class Tape {
 public:
  using Backward = std::function<void(Context&, Tape&)>;

  GradientId new_gradient();

  // `op` names a static string. The node runs when the gradient of `output` is there; a node without output
  // (kNoGradient) always runs.
  void record(Context& context, const char* op, GradientId output, Backward backward);
  // The node recorded last reads these weights or adds to their gradients; some may be nullptr. When no node
  // is left that uses a weight, context.gradients is told.
  void uses(Context& context, std::initializer_list<Weight*> weights);

  // Adds to a gradient; the first addition takes the tensor itself. Without a gradient wanted it is dropped.
  void add_gradient(Context& context, GradientId id, Tensor gradient);
  // The gradient, left in place (an op with two nodes reads it twice) or taken away.
  const Tensor& gradient(GradientId id) const;
  Tensor take_gradient(GradientId id);

  // Runs all nodes in reverse and leaves the tape empty. Gradients of values must have been added by the loss
  // op's node.
  void backward(Context& context);
  // The same, but the gradients of values that no node has taken stay.
  void run_nodes(Context& context);
  void clear();
  std::size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    const char* op;
    GradientId output;
    std::string scope;
    Backward backward;
    std::vector<GradientSink*> sinks;  // of the weights that it uses
  };
  void run(Context& context, Node& node);
  std::vector<Node> nodes_;
  std::vector<Tensor> gradients_;
};

// Records when the context has a tape; gives the new value its gradient id.
Value make_value(Context& context, Tensor data, bool wants_gradient);

// When the context searches for non-finite numbers: looks at an op's output (a row per token).
void inspect(Context& context, const char* op, const Tensor& output, bool backward = false);
void inspect(Context& context, const char* op, ConstView output, bool backward = false);

}  // namespace lode
