// Every optimizer's state bytes per parameter, time per step and the whole training step's time against
// AdamW's, on four layers of the 124M Llama shape (768 wide) with a small vocabulary: rows of
// docs/optimizers.md. Arguments: threads (2), repetitions (5), tokens of a step (2048).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "nn/decoder.h"
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
          {"Lion, 8-bit state", Lion8bitOptions{}},
          {"SGD", SgdOptions{}},
          {"SGD, momentum", SgdOptions{.momentum = 0.9}},
          {"Muon", MuonOptions{}},
          {"GaLore, rank 128", GaloreOptions{.rank = 128}},
          {"GaLore, rank 128, 8-bit state", GaloreOptions{.rank = 128, .state_8bit = true}},
          {"APOLLO, rank 128", apollo},
          {"APOLLO-Mini", ApolloOptions{.rank = 1, .scale = 128, .scale_type = ApolloScale::tensor}},
          {"BAdam", BadamOptions{}}};
}

DecoderSpec spec() {
  DecoderSpec spec;
  spec.vocab_size = 8192;
  spec.hidden = 768;
  spec.intermediate = 2048;
  spec.layers = 4;
  spec.heads = spec.kv_heads = 12;
  spec.head_dim = 64;
  spec.max_positions = 2048;
  spec.rotary.rotary_dim = 64;
  spec.attention_scale = 0.125;
  spec.tied_head = true;
  return spec;
}

DecoderNames names() {
  return {.embedding = "model.embed_tokens.weight",
          .positions = "",
          .attention_norm = "model.layers.{}.input_layernorm.weight",
          .mlp_norm = "model.layers.{}.post_attention_layernorm.weight",
          .final_norm = "model.norm.weight",
          .q = "model.layers.{}.self_attn.q_proj.weight",
          .k = "model.layers.{}.self_attn.k_proj.weight",
          .v = "model.layers.{}.self_attn.v_proj.weight",
          .output = "model.layers.{}.self_attn.o_proj.weight",
          .gate = "model.layers.{}.mlp.gate_proj.weight",
          .up = "model.layers.{}.mlp.up_proj.weight",
          .down = "model.layers.{}.mlp.down_proj.weight",
          .head = "lm_head.weight"};
}

// Samples of 512 tokens.
Batch make_batch(std::int64_t tokens) {
  std::vector<std::int32_t> ids, labels, lengths;
  std::vector<std::int64_t> samples;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (t % 512 == 0) {
      lengths.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(512, tokens - t)));
      samples.push_back(t / 512);
    }
    ids.push_back(static_cast<std::int32_t>(t * 7919 % 8192));
    labels.push_back(static_cast<std::int32_t>((t + 1) * 7919 % 8192));
  }
  return Batch(ids, labels, std::vector<float>(labels.size(), 1.0f),
               Segments(lengths, samples, static_cast<std::int32_t>(tokens)));
}

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Machine {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}, .dtype = DType::bf16};
  Decoder decoder{context, spec(), names(), true};

  explicit Machine(int threads) {
    context.kernel.threads = threads;
    decoder.initialise(context, 1);
    decoder.parameters().allocate_gradients();
  }
  void compute_gradients(const Batch& batch) {
    decoder.parameters().reset_gradients();
    Tape tape;
    context.tape = &tape;
    decoder.loss(context, batch, 1.0f / static_cast<float>(batch.num_tokens()));
    tape.backward(context);
    context.tape = nullptr;
  }
};

struct Result {
  double bytes, first, best;
};

Result measure(Machine& machine, const OptimizerOptions& options, int repetitions) {
  Context& context = machine.context;
  ParameterList& list = machine.decoder.parameters();
  ParameterUpdater updater(context, list, make_optimizer(options));
  const double first = seconds_of([&] { updater.step(context, 1e-6, 1, {}); });
  double best = 1e9;
  for (int i = 0; i < repetitions; ++i)
    best = std::min(best, seconds_of([&] { updater.step(context, 1e-6, 1, {}); }));
  const double bytes = static_cast<double>(updater.state_bytes()) / static_cast<double>(list.numel());
  return {bytes, first, best};
}

int number(int argc, char** argv, int at, int otherwise) {
  return argc > at ? std::atoi(argv[at]) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = number(argc, argv, 1, 2), repetitions = number(argc, argv, 2, 5);
  const Batch batch = make_batch(number(argc, argv, 3, 2048));
  double backward = 1e9, adamw = 0;
  std::printf(
      "| optimizer | state bytes per parameter | step, ms | against AdamW | training step against AdamW's | "
      "first step, ms |\n| --- | --- | --- | --- | --- | --- |\n");
  for (const Candidate& candidate : candidates()) {
    Machine machine(threads);  // fresh: BAdam takes gradients away
    machine.compute_gradients(batch);
    // In turns with the optimizers, so that other work on the machine meets both.
    backward = std::min(backward, seconds_of([&] { machine.compute_gradients(batch); }));
    const Result r = measure(machine, candidate.options, repetitions);
    if (adamw == 0) adamw = r.best;
    std::printf("| %s | %.3f | %.1f | %.2f | %.3f | %.1f |\n", candidate.name, r.bytes, r.best * 1e3,
                r.best / adamw, (backward + r.best) / (backward + adamw), r.first * 1e3);
    std::fflush(stdout);
  }
  std::printf("\nforward and backward of %lld tokens: %.0f ms\n", static_cast<long long>(batch.num_tokens()),
              backward * 1e3);
}
