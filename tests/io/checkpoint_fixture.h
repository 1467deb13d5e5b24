// A tiny model with optimizer state, and saving and comparing it.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "io/checkpoint.h"
#include "io/weights.h"
#include "temp_folder.h"

namespace lode {

// Three parameters with two moments each; values are a function of the step.
struct TinyState {
  static constexpr int kParameters = 3;
  std::vector<float> values[kParameters], first[kParameters], second[kParameters];

  explicit TinyState(std::int64_t step) {
    for (int p = 0; p < kParameters; ++p) {
      for (int i = 0; i < 4 + p; ++i) {
        const float base = static_cast<float>(step) * 1000 + static_cast<float>(100 * p + i);
        values[p].push_back(base + 0.25f);
        first[p].push_back(base + 0.5f);
        second[p].push_back(base + 0.75f);
      }
    }
  }
  friend bool operator==(const TinyState& a, const TinyState& b) {
    for (int p = 0; p < kParameters; ++p) {
      if (a.values[p] != b.values[p] || a.first[p] != b.first[p] || a.second[p] != b.second[p]) return false;
    }
    return true;
  }
};

inline std::string tiny_name(int p) {
  return p == 1 ? "b.weight" : p == 0 ? "z.weight" : "a.bias";
}

inline CheckpointContents tiny_contents(const std::string& output_dir, std::int64_t step,
                                        const TinyState& state) {
  CheckpointContents contents;
  contents.output_dir = output_dir;
  contents.step = step;
  contents.files = {
      {"config.json", "{\"model_type\": \"llama\"}\n"}, {"trainer_state.json", "{}\n"}, {"empty.txt", ""}};
  contents.state["step"] = step;
  for (int p = 0; p < TinyState::kParameters; ++p) {
    const Shape shape{static_cast<std::int64_t>(state.values[p].size())};
    const auto parameter = static_cast<std::size_t>(p);
    const std::string name = tiny_name(p);
    contents.model.push_back({{name, DType::f32, shape}, view_of(std::span(state.values[p])), parameter});
    contents.optimizer.push_back(
        {{name + ".exp_avg", DType::f32, shape}, view_of(std::span(state.first[p])), parameter});
    contents.optimizer.push_back(
        {{name + ".exp_avg_sq", DType::f32, shape}, view_of(std::span(state.second[p])), parameter});
  }
  return contents;
}

inline std::string save_tiny(FileSystem& files, const std::string& output_dir, std::int64_t step) {
  const TinyState state(step);
  return save_checkpoint(files, tiny_contents(output_dir, step, state));
}

inline TinyState load_tiny(FileSystem& files, const std::string& path) {
  TinyState state(-1);
  std::vector<TensorTarget> model, optimizer;
  const auto target = [](std::string name, std::vector<float>& values) {
    const auto n = static_cast<std::int64_t>(values.size());
    return TensorTarget{std::move(name), {n}, {values.data(), DType::f32, 1, n, n}};
  };
  for (int p = 0; p < TinyState::kParameters; ++p) {
    model.push_back(target(tiny_name(p), state.values[p]));
    optimizer.push_back(target(tiny_name(p) + ".exp_avg", state.first[p]));
    optimizer.push_back(target(tiny_name(p) + ".exp_avg_sq", state.second[p]));
  }
  load_tensors(WeightSet(files, path), model, {});
  load_tensors(WeightSet(files, join_path(path, "optimizer.safetensors")), optimizer, {});
  return state;
}

// The newest sound checkpoint's step after loading it and comparing every value; -1 when there is none.
inline std::int64_t check_latest(FileSystem& files, const std::string& output_dir) {
  const LatestCheckpoint latest = find_latest_checkpoint(files, output_dir);
  if (!latest.found) return -1;
  EXPECT_TRUE(load_tiny(files, latest.found->path) == TinyState(latest.found->step)) << latest.found->path;
  EXPECT_EQ(read_checkpoint_state(files, latest.found->path).at("step").as_int(), latest.found->step);
  return latest.found->step;
}

}  // namespace lode
