// Loss and the gradient of every parameter against Hugging Face transformers (tools/model_fixtures).
#include <gtest/gtest.h>

#include <cmath>

#include "models/model_test.h"

namespace lode::test {
namespace {

class Gradients : public testing::TestWithParam<const char*> {};

TEST_P(Gradients, EqualThoseOfTransformers) {
  const std::string path = format("{}/models/fixtures/gradients_{}.json", LODE_TEST_DIR, GetParam());
  const Json fixture = parse_json(real_files().read(path), path);
  TinyModel model(fixture.at("config").dump(), true);
  fill_by_rule(model.decoder.parameters());
  model.decoder.parameters().allocate_gradients();
  std::vector<std::vector<std::int32_t>> samples;
  for (const Json& tokens : fixture.at("tokens").as_array()) {
    samples.emplace_back();
    for (const Json& token : tokens.as_array())
      samples.back().push_back(static_cast<std::int32_t>(token.as_int()));
  }
  const Batch batch = packed_batch(samples);
  Tape tape;
  model.context.tape = &tape;
  const auto targets = static_cast<double>(batch.num_targets());
  const TokenLosses losses = model.decoder.loss(model.context, batch, static_cast<float>(1 / targets));
  tape.backward(model.context);
  EXPECT_NEAR(losses.sum / targets, fixture.at("loss").as_double(), 1e-5 * fixture.at("loss").as_double());

  const auto& tensors = fixture.at("tensors").as_object();
  ASSERT_EQ(tensors.size(), model.decoder.parameters().all().size());
  for (const auto& [name, expected] : tensors) {
    SCOPED_TRACE(name);
    const Parameter* p = model.decoder.parameters().find(name);
    ASSERT_NE(p, nullptr);
    const double norm = expected.as_array()[0].as_double();
    double squares = 0;
    std::size_t found = 0;
    for (std::int64_t r = 0; r < p->rows; ++r) {
      for (std::int64_t c = 0; c < p->cols; ++c) {
        const double got = p->gradient().row<float>(r)[c];
        squares += got * got;
        const Json* want = expected.as_array()[1].find(format("{}", stored_index(*p, r, c)));
        if (want == nullptr) continue;
        ++found;
        EXPECT_NEAR(got, want->as_double(), 1e-4 * std::abs(want->as_double()) + 1e-6 * norm);
      }
    }
    EXPECT_EQ(found, expected.as_array()[1].size());
    EXPECT_NEAR(std::sqrt(squares), norm, 1e-4 * norm + 1e-7);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Gradients, testing::Values("llama", "llama_biased", "gpt2"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace lode::test
