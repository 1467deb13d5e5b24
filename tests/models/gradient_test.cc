// Logits, loss and gradients against Hugging Face transformers (tools/model_fixtures): f32 to 1e-4, bf16
// within kBf16Loss and each model's bf16_gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "models/model_test.h"
#include "models/parity.h"

namespace lode::test {
namespace {

// Relative to the loss; to a tensor's gradient, or a hundredth of the model's largest where that is more:
// what rounding leaves of a gradient that nearly cancels is noise of the others' size.
constexpr double kBf16Loss = 2e-3;

std::vector<std::vector<std::int32_t>> samples_of(const Json& fixture) {
  std::vector<std::vector<std::int32_t>> samples;
  for (const Json& tokens : fixture.at("tokens").as_array()) {
    samples.emplace_back();
    for (const Json& token : tokens.as_array())
      samples.back().push_back(static_cast<std::int32_t>(token.as_int()));
  }
  return samples;
}

struct Errors {
  double logits = 0, loss = 0, gradients = 0;
};

double largest_norm(const Json& fixture) {
  double largest = 0;
  for (const auto& [name, expected] : fixture.at("tensors").as_object())
    largest = std::max(largest, expected.as_array()[0].as_double());
  return largest;
}

// A tensor's gradient beside the fixture's norm and elements: the largest difference. In f32 it is relative
// to each element that is not small beside the norm, in bf16 to the norm or `floor`.
double gradient_error(const Parameter& p, const Json& expected, DType dtype, double floor) {
  const double norm = expected.as_array()[0].as_double();
  const double whole = dtype == DType::f32 ? norm + 1e-6 : std::max(norm, floor);
  double squares = 0, worst = 0;
  std::size_t found = 0;
  for (std::int64_t r = 0; r < p.rows; ++r) {
    for (std::int64_t c = 0; c < p.cols; ++c) {
      const double got = p.gradient().row<float>(r)[c];
      squares += got * got;
      const Json* want = expected.as_array()[1].find(format("{}", stored_index(p, r, c)));
      if (want == nullptr) continue;
      ++found;
      const double size = dtype == DType::f32 ? std::abs(want->as_double()) + 0.01 * whole : whole;
      worst = std::max(worst, std::abs(got - want->as_double()) / size);
    }
  }
  EXPECT_EQ(found, expected.as_array()[1].size());
  return std::max(worst, std::abs(std::sqrt(squares) - norm) / whole);
}

double logits_error(TinyModel& model, const Json& fixture) {
  const Batch batch = packed_batch(samples_of(fixture));
  const Value hidden = model.decoder.forward(model.context, batch);
  double worst = 0;
  for (std::size_t s = 0; s < batch.segments().list().size(); ++s) {
    const Segment& segment = batch.segments().list()[s];
    const Tensor last = hidden.data.slice_rows(segment.begin + segment.length - 1, 1);
    const Tensor logits = model.decoder.last_logits(model.context, {last});
    const auto& want = fixture.at("logits").as_array()[s].as_array();
    for (std::size_t v = 0; v < want.size(); ++v)
      worst = std::max(worst, std::abs(logits.view().row<float>(0)[v] - want[v].as_double()));
  }
  return worst;
}

Errors compare(const Json& fixture, DType dtype, double gradient_bound) {
  TinyModel model(fixture.at("config").dump(), true);
  model.context.dtype = dtype;
  fill_by_rule(model.decoder.parameters());
  Errors errors;
  errors.logits = logits_error(model, fixture);
  model.decoder.parameters().allocate_gradients();
  const Batch batch = packed_batch(samples_of(fixture));
  Tape tape;
  model.context.tape = &tape;
  const auto targets = static_cast<double>(batch.num_targets());
  const TokenLosses losses = model.decoder.loss(model.context, batch, static_cast<float>(1 / targets));
  tape.backward(model.context);
  const double loss = fixture.at("loss").as_double();
  errors.loss = std::abs(losses.sum / targets - loss) / loss;
  const double floor = 0.01 * largest_norm(fixture);
  for (const auto& [name, expected] : fixture.at("tensors").as_object()) {
    SCOPED_TRACE(name);
    const Parameter* p = model.decoder.parameters().find(name);
    if (p == nullptr) {
      ADD_FAILURE() << "the model has no such tensor";
      continue;
    }
    const double error = gradient_error(*p, expected, dtype, floor);
    EXPECT_LE(error, gradient_bound);
    errors.gradients = std::max(errors.gradients, error);
  }
  return errors;
}

struct Model {
  const char* name;
  bool every_tensor = true;  // the fixture lists all of them
  double bf16_gradients = 3e-2;
};
class Gradients : public testing::TestWithParam<Model> {};

TEST_P(Gradients, EqualThoseOfTransformers) {
  const auto [name, every_tensor, bf16_gradients] = GetParam();
  const std::string path = format("{}/models/fixtures/gradients_{}.json", LODE_TEST_DIR, name);
  const Json fixture = parse_json(real_files().read(path), path);
  if (every_tensor) {
    const TinyModel model(fixture.at("config").dump());
    ASSERT_EQ(fixture.at("tensors").size(), model.decoder.parameters().all().size());
  }
  const Errors f32 = compare(fixture, DType::f32, 1e-4);
  const Errors bf16 = compare(fixture, DType::bf16, bf16_gradients);
  EXPECT_LE(f32.logits, 1e-4);
  EXPECT_LE(f32.loss, 1e-5);
  EXPECT_LE(bf16.loss, kBf16Loss);
  Parity::table().add(format("| {} | {} | {:.1e} | {:.1e} | {:.1e} | {:.1e} | {:.1e} |", name,
                             fixture.at("made_with").as_string(), f32.logits, f32.loss, f32.gradients,
                             bf16.loss, bf16.gradients));
}

// Gemma's factors of 1 + weight, about 2 here, make scores large and what rounding does to them too.
INSTANTIATE_TEST_SUITE_P(All, Gradients,
                         testing::Values(Model{"llama"}, Model{"llama_biased"}, Model{"llama_dynamic", false},
                                         Model{"llama_longrope", false}, Model{"llama_yarn", false},
                                         Model{"gpt2"}, Model{"mistral"}, Model{"qwen2"}, Model{"qwen3"},
                                         Model{"smollm3"}, Model{"gemma3_text", true, 0.1}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace lode::test
