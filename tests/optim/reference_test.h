// The problem of tools/optimizer_fixtures: ten steps of an optimizer, compared with its reference package.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "models/fill_rule.h"
#include "optim/optimizers.h"

namespace lode::test {

inline void copy_values(const std::vector<double>& values, View to) {
  ASSERT_EQ(static_cast<std::int64_t>(values.size()), to.numel());
  for (std::int64_t i = 0; i < to.numel(); ++i)
    to.row<float>(i / to.cols)[i % to.cols] = static_cast<float>(values[static_cast<std::size_t>(i)]);
}

inline std::vector<float> values_of(View v) {
  std::vector<float> values;
  for (std::int64_t r = 0; r < v.rows; ++r)
    values.insert(values.end(), v.row<float>(r), v.row<float>(r) + v.cols);
  return values;
}

inline std::vector<double> stream_of(const std::string& name, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(fill_uniform(name, i));
  return values;
}

// A list of parameters of its own, with gradients that follow the fill rule.
class Problem {
 public:
  static constexpr double kRate = 0.01, kDecay = 0.1;

  explicit Problem(int threads = 1) { context.kernel.threads = threads; }

  void add(const std::string& name, std::int64_t rows, std::int64_t cols,
           ModuleKind kind = ModuleKind::linear) {
    list.add({{.name = name, .rows = rows, .cols = cols, .kind = kind}});
  }
  void add_vector(const std::string& name, std::int64_t size) {
    list.add({{.name = name, .cols = size, .vector = true, .decay = false, .kind = ModuleKind::norm}});
  }
  void add_standard() {
    add("model.embed_tokens.weight", 7, 8, ModuleKind::embedding);
    add("model.layers.0.self_attn.q_proj.weight", 8, 8);
    add("model.layers.0.self_attn.v_proj.weight", 4, 8);
    add_vector("model.layers.0.self_attn.v_proj.bias", 4);
    add("model.layers.0.mlp.down_proj.weight", 8, 12);
    add("model.layers.1.mlp.up_proj.weight", 12, 8);
    add_vector("model.norm.weight", 8);
    add("lm_head.weight", 7, 8, ModuleKind::head);
  }
  void start(const OptimizerOptions& options, std::unique_ptr<StateStore> store = nullptr) {
    list.allocate_gradients();
    for (const Parameter& p : list.all()) copy_values(stream_of(p.name, p.numel()), p.values());
    updater = std::make_unique<ParameterUpdater>(context, list, make_optimizer(options),
                                                 WeightRounding::stochastic, std::move(store));
  }
  // Steps [first, last); the gradients are written multiplied and clipped back by `clip`.
  void run(int first, int last, float clip = 1) {
    for (int step = first; step < last; ++step) {
      for (const Parameter& p : list.all()) {
        if (p.storage->gradient() == nullptr) continue;
        p.storage->gradient()->adding(context);
        std::vector<double> values = stream_of(format("{}/{}", p.name, step), p.numel());
        for (double& value : values) value /= clip;
        copy_values(values, p.gradient());
      }
      updater->step(context, kRate * (step + 1) / 10, clip, {});
    }
  }
  std::vector<std::vector<float>> weights() const {
    std::vector<std::vector<float>> all;
    for (const Parameter& p : list.all()) all.push_back(values_of(p.values()));
    return all;
  }

  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  ParameterList list{memory, true};
  std::unique_ptr<ParameterUpdater> updater;
};

inline Json read_fixture(const std::string& name) {
  const std::string path = format("{}/optim/fixtures/{}.json", LODE_TEST_DIR, name);
  return parse_json(real_files().read(path), path);
}

// The largest difference that the running test has seen, as a property of its result: a column of the table
// in docs/optimizers.md.
inline void note_difference(double difference) {
  static std::map<const testing::TestInfo*, double> largest;
  double& most = largest[testing::UnitTest::GetInstance()->current_test_info()];
  most = std::max(most, difference);
  testing::Test::RecordProperty("largest_difference", format("{:.1e}", most));
}

// Every `stride`th value of each parameter that the fixture has.
inline void expect_values(const Json& want, const ParameterList& list, double tolerance,
                          std::size_t stride = 3) {
  std::size_t found = 0;
  for (const Parameter& p : list.all()) {
    const Json* values = want.find(p.name);
    if (values == nullptr) continue;
    ++found;
    const std::vector<float> got = values_of(p.values());
    ASSERT_EQ(values->size(), (got.size() + stride - 1) / stride) << p.name;
    for (std::size_t i = 0; i < values->size(); ++i) {
      const double value = values->as_array()[i].as_double();
      EXPECT_NEAR(got[i * stride], value, tolerance) << p.name << " " << i * stride;
      note_difference(std::abs(got[i * stride] - value));
    }
  }
  EXPECT_EQ(found, want.size());
}

// Ten steps of the standard problem against a case of a fixture, with and without clipping, as it must make
// no difference; and the same from a copy of the state after five.
inline void expect_reference(const std::string& fixture, const std::string& name,
                             const OptimizerOptions& options, double tolerance = 2e-6) {
  SCOPED_TRACE(fixture + ": " + name);
  const Json file = read_fixture(fixture);
  const Json& want = file.at(name);
  for (const float clip : {1.0f, 0.25f}) {
    Problem problem;
    problem.add_standard();
    problem.start(options);
    problem.run(0, 10, clip);
    expect_values(want, problem.list, tolerance);
  }
}

// A run that is interrupted after `at` steps and goes on from the named state tensors gives the same bits.
inline void expect_exact_resume(const OptimizerOptions& options, int at = 5) {
  Problem whole, first, second;
  for (Problem* p : {&whole, &first, &second}) p->add_standard();
  whole.start(options);
  whole.run(0, 10);
  first.start(options);
  first.run(0, at);
  second.start(options);
  second.updater->set_time(second.context, at);
  for (std::size_t i = 0; i < first.list.all().size(); ++i) {
    const View from = first.list.all()[i].values(), to = second.list.all()[i].values();
    const auto values = values_of(from);
    copy_values(std::vector<double>(values.begin(), values.end()), to);
    auto &saved = first.updater->states()[i], &loaded = second.updater->states()[i];
    ASSERT_EQ(saved.size(), loaded.size());
    ASSERT_EQ(saved.empty() ? 0 : first.updater->state_names(i).size(), saved.size());
    for (std::size_t k = 0; k < saved.size(); ++k) {
      ASSERT_EQ(saved[k].bytes(), loaded[k].bytes());
      std::memcpy(loaded[k].view().data, saved[k].view().data, saved[k].bytes());
    }
  }
  second.run(at, 10);
  EXPECT_EQ(second.weights(), whole.weights());
}

// One thread and three give the same bits, on matrices that are cut.
inline void expect_same_for_threads(const OptimizerOptions& options) {
  std::vector<std::vector<std::vector<float>>> results;
  for (const int threads : {1, 3}) {
    Problem problem(threads);
    problem.add("model.layers.0.mlp.down_proj.weight", 130, 519);
    problem.add("model.layers.0.mlp.up_proj.weight", 403, 130);
    problem.add_vector("model.norm.weight", 77);
    problem.start(options);
    problem.run(0, 2);
    results.push_back(problem.weights());
  }
  EXPECT_EQ(results[0], results[1]);
}

// All that every optimizer keeps to.
inline void expect_exactness(const OptimizerOptions& options) {
  expect_exact_resume(options);
  expect_same_for_threads(options);
}

}  // namespace lode::test
