// State bytes per parameter and time per step of every optimizer, on four layers of the 124M shape (768 wide)
// with a small embedding: the table of docs/add-an-optimizer.md. Arguments: threads (2), repetitions (7).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "optim/optimizers.h"

using namespace lode;

namespace {

struct Candidate {
  const char* name;
  OptimizerOptions options;
};

std::vector<Candidate> candidates() {
  const ApolloOptions apollo{.rank = 128, .scale = 1};
  return {{"AdamW", AdamWOptions{}},
          {"AdamW, 8-bit state", AdamW8bitOptions{}},
          {"Adam-mini", AdamMiniOptions{.head_size = 64}},
          {"Adafactor", AdafactorOptions{}},
          {"Lion", LionOptions{}},
          {"SGD", SgdOptions{}},
          {"SGD, momentum", SgdOptions{.momentum = 0.9}},
          {"Muon", MuonOptions{}},
          {"GaLore, rank 128", GaloreOptions{.rank = 128}},
          {"GaLore, rank 128, 8-bit state", GaloreOptions{.rank = 128, .state_8bit = true}},
          {"APOLLO, rank 128", apollo},
          {"APOLLO-Mini", ApolloOptions{.rank = 1, .scale = 128, .scale_type = ApolloScale::tensor}},
          {"BAdam", BadamOptions{}}};
}

struct Result {
  double bytes, first, best;
};

Result measure(const OptimizerOptions& options, int threads, int repetitions) {
  Memory memory;
  Facts facts;
  Workspace workspace(memory);
  Context context{.memory = memory, .facts = facts, .kernel = {threads, &workspace}, .dtype = DType::bf16};
  ParameterList list(memory, true);
  list.add({{.name = "model.embed_tokens.weight", .rows = 8192, .cols = 768, .kind = ModuleKind::embedding}});
  for (int layer = 0; layer < 4; ++layer) {
    const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t cols) {
      list.add({{.name = format("model.layers.{}.{}.weight", layer, name), .rows = rows, .cols = cols}});
    };
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"})
      matrix(name, 768, 768);
    matrix("mlp.up_proj", 3072, 768);
    matrix("mlp.down_proj", 768, 3072);
  }
  list.allocate_gradients();
  for (const Parameter& p : list.all()) {
    initialise(context, p, 1);
    p.storage->acquire(context, DType::bf16);
    p.storage->gradient()->adding(context);
    std::copy_n(p.values().row<float>(0), p.numel(), p.gradient().row<float>(0));
  }
  ParameterUpdater updater(context, list, make_optimizer(options));
  for (const Parameter& p : list.all()) {
    if (p.storage->gradient() != nullptr) p.storage->gradient()->adding(context);
  }
  std::vector<double> times;
  double first = 0;
  for (int i = 0; i <= repetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    updater.step(context, 1e-4, 1, {});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    i == 0 ? first = seconds : (times.push_back(seconds), 0.0);
  }
  std::ranges::sort(times);
  const double bytes = static_cast<double>(updater.state_bytes()) / static_cast<double>(list.numel());
  return {bytes, first, times.front()};
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2, repetitions = argc > 2 ? std::atoi(argv[2]) : 7;
  double adamw = 0;
  std::printf(
      "| optimizer | state bytes per parameter | step, ms (the fastest) | against AdamW | first step, ms "
      "|\n| --- | --- | "
      "--- | --- | --- |\n");
  for (const Candidate& candidate : candidates()) {
    const Result r = measure(candidate.options, threads, repetitions);
    if (adamw == 0) adamw = r.best;
    std::printf("| %s | %.3f | %.1f | %.2f | %.1f |\n", candidate.name, r.bytes, r.best * 1e3, r.best / adamw,
                r.first * 1e3);
    std::fflush(stdout);
  }
}
