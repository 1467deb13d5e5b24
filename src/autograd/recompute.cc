#include "autograd/recompute.h"

#include <algorithm>

namespace lode {
namespace {

// Ops record on `tape` while this lives.
class Recording {
 public:
  Recording(Context& context, Tape& tape) : context_(context), before_(context.tape) { context.tape = &tape; }
  ~Recording() { context_.tape = before_; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  Context& context_;
  Tape* before_;
};

// Ops run in `scope` while this lives.
class InScope {
 public:
  InScope(Context& context, std::string scope) : context_(context), before_(std::move(context.scope)) {
    context.scope = std::move(scope);
  }
  ~InScope() { context_.scope = std::move(before_); }
  InScope(const InScope&) = delete;
  InScope& operator=(const InScope&) = delete;

 private:
  Context& context_;
  std::string before_;
};

std::vector<Value> record(Context& context, Tape& tape, const Stretch& stretch, const Value& input) {
  const Recording recording(context, tape);
  return stretch(context, input);
}

struct Node {
  Stretch stretch;
  Saved input;
  GradientId input_gradient;
  std::vector<GradientId> outputs;
  std::string scope;
  std::function<void()> recomputed;

  void backward(Context& context, Tape& tape) const {
    const bool reached = std::ranges::any_of(
        outputs, [&](GradientId id) { return id != kNoGradient && tape.gradient(id).defined(); });
    if (!reached) return;
    const InScope in_scope(context, scope);
    Tape again;
    Value in{input.get(context)};
    if (input_gradient != kNoGradient) in.gradient = again.new_gradient();
    {
      const std::vector<Value> outs = record(context, again, stretch, in);
      for (std::size_t i = 0; i < outs.size(); ++i) {
        if (outputs[i] == kNoGradient) continue;
        if (Tensor gradient = tape.take_gradient(outputs[i]); gradient.defined())
          again.add_gradient(context, outs[i].gradient, std::move(gradient));
      }
    }
    recomputed();
    in.data = Tensor();
    again.run_nodes(context);
    if (input_gradient == kNoGradient) return;
    if (Tensor gradient = again.take_gradient(in.gradient); gradient.defined())
      tape.add_gradient(context, input_gradient, std::move(gradient));
  }
};

}  // namespace

std::vector<Value> recompute_later(Context& context, Stretch stretch, const Value& input,
                                   const SaveInput& save, std::function<void()> recomputed) {
  if (context.tape == nullptr) return stretch(context, input);
  // Only recording tells which outputs want a gradient; what it saved is dropped here.
  Tape dropped;
  std::vector<Value> outs;
  {
    Value in{input.data};
    if (input.wants_gradient()) in.gradient = dropped.new_gradient();
    outs = record(context, dropped, stretch, in);
  }
  dropped.clear();
  Node node{std::move(stretch), save(input.data), input.gradient, {}, context.scope, std::move(recomputed)};
  bool wanted = false;
  for (Value& out : outs) {
    out = make_value(context, std::move(out.data), out.wants_gradient());
    node.outputs.push_back(out.gradient);
    wanted = wanted || out.wants_gradient();
  }
  if (!wanted) return outs;
  context.tape->record(context, "recompute", kNoGradient,
                       [node = std::move(node)](Context& c, Tape& tape) { node.backward(c, tape); });
  return outs;
}

}  // namespace lode
