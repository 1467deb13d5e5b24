#include "ops/op_test.h"

namespace lode::test {

OpResult run_op(const OpCase& op, DType dtype, int threads, const std::vector<Doubles>& seeds) {
  OpContext env(dtype, threads);
  OpResult result;
  result.input_gradients.resize(op.inputs.size());
  std::vector<Value> inputs;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    inputs.push_back(make_value(env.context, env.tensor(op.inputs[i]), true));
    env.tape.record(env.context, "leaf", inputs.back().gradient,
                    [&result, i, id = inputs.back().gradient](Context&, Tape& tape) {
                      result.input_gradients[i] = doubles_of(tape.gradient(id).view());
                    });
  }
  std::vector<std::unique_ptr<FakeWeight>> weights;
  std::vector<Weight*> pointers;
  for (const Doubles& values : op.weights) {
    weights.push_back(std::make_unique<FakeWeight>(env.memory, values));
    pointers.push_back(weights.back().get());
  }
  {
    std::vector<Value> outputs = op.run(env.context, std::move(inputs), pointers);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      result.outputs.push_back(doubles_of(outputs[i].data.view()));
      if (!op.is_loss) env.tape.add_gradient(env.context, outputs[i].gradient, env.tensor(seeds[i]));
    }
  }
  env.tape.backward(env.context);
  for (const auto& weight : weights) {
    EXPECT_FALSE(weight->sink().stale()) << "no gradient reached a weight";
    result.weight_gradients.push_back(doubles_of(weight->sink().tensor().view()));
  }
  return result;
}

void expect_close(const Doubles& got, const Doubles& want, double error, const std::string& what) {
  ASSERT_EQ(got.values.size(), want.values.size()) << what;
  double scale = 1e-3;
  for (const double value : want.values) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    ASSERT_LE(std::abs(got.values[i] - want.values[i]), error * scale)
        << what << " element " << i << ": got " << got.values[i] << ", want " << want.values[i];
  }
}

namespace {

// Gradient of sum(seed * output) by central differences, all elements of small tensors and a sample of large
// ones.
void expect_gradients(const OpCase& op, const std::vector<Doubles>& seeds, const OpResult& got,
                      double error) {
  std::vector<Doubles> inputs = op.inputs, weights = op.weights;
  const auto total = [&] {
    const std::vector<Doubles> outputs = op.reference(inputs, weights);
    double sum = 0;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      for (std::size_t i = 0; i < outputs[k].values.size(); ++i) {
        sum += outputs[k].values[i] * (op.is_loss ? 1.0 : seeds[k].values[i]);
      }
    }
    return sum;
  };
  const auto check = [&](Doubles& variable, const Doubles& gradient, const std::string& what) {
    ASSERT_EQ(gradient.values.size(), variable.values.size()) << what << ": no gradient";
    double scale = 0.1;  // terms are of size 1 and cancel
    for (const double value : gradient.values) scale = std::max(scale, std::abs(value));
    const std::size_t n = variable.values.size(), stride = n <= 64 ? 1 : n / 23;
    for (std::size_t i = 0; i < n; i += stride) {
      double& x = variable.values[i];
      const double at = x;
      const double want = central_difference([&](double value) { return x = value, total(); }, at, 1e-5);
      x = at;
      ASSERT_LE(std::abs(gradient.values[i] - want), error * scale + 1e-8)
          << what << " element " << i << ": got " << gradient.values[i] << ", differences give " << want;
    }
  };
  for (std::size_t k = 0; k < inputs.size(); ++k)
    check(inputs[k], got.input_gradients[k], format("input {}", k));
  for (std::size_t k = 0; k < weights.size(); ++k)
    check(weights[k], got.weight_gradients[k], format("weight {}", k));
}

}  // namespace

void check_op(const OpCase& op, DType dtype) {
  const std::vector<Doubles> want = op.reference(op.inputs, op.weights);
  const double error = dtype == DType::bf16 ? op.bf16_error : op.f32_error;
  Rng rng(11, "seeds");
  std::vector<Doubles> seeds;
  for (const Doubles& output : want)
    seeds.push_back(Doubles(output.rows, output.cols).fill_normal(rng, dtype));
  const OpResult one = run_op(op, dtype, 1, seeds);
  if (!op.is_loss) {
    ASSERT_EQ(one.outputs.size(), want.size());
  }
  for (std::size_t k = 0; k < one.outputs.size(); ++k)
    expect_close(one.outputs[k], want[k], error, format("output {}", k));
  expect_gradients(op, seeds, one, error);
  const OpResult two = run_op(op, dtype, 2, seeds);
  const auto same = [&](const std::vector<Doubles>& a, const std::vector<Doubles>& b,
                        const std::string& what) {
    for (std::size_t k = 0; k < a.size(); ++k) {
      if (op.threads_matter) {
        expect_close(b[k], a[k], dtype == DType::bf16 ? 0x1p-8 : 1e-6, what + " with two threads");
      } else {
        EXPECT_EQ(a[k].values, b[k].values) << what << " " << k << ": threads matter";
      }
    }
  };
  same(one.outputs, two.outputs, "output");
  same(one.input_gradients, two.input_gradients, "gradient of input");
  same(one.weight_gradients, two.weight_gradients, "gradient of weight");
}

void check_op_at_odd_sizes(
    const std::function<OpCase(DType, std::int64_t tokens, std::int64_t channels, Rng&)>& make) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t tokens : {1, 7, 129}) {
      for (const std::int64_t channels : {1, 3, 17, 65}) {
        SCOPED_TRACE(format("{} [{}, {}]", name_of(dtype), tokens, channels));
        Rng rng(5, "op_test");
        check_op(make(dtype, tokens, channels, rng), dtype);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace lode::test
