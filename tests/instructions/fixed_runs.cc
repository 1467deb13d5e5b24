// Small pieces of work whose instructions tools/check_instructions.py counts under callgrind: what
// lode_measured calls is counted, nothing before or after.
//   lode_fixed_runs NAME
#include <cstdio>
#include <cstring>
#include <functional>

#include "core/fail.h"
#include "core/rng.h"
#include "data/rows.h"
#include "data/sources.h"
#include "io/safetensors.h"
#include "models/family.h"
#include "temp_folder.h"
#include "text/bpe_trainer.h"
#include "text/builtin_templates.h"
#include "text/chat_template.h"
#include "train/bench.h"

// By this name callgrind knows where to count.
extern "C" [[gnu::noinline]] void lode_measured(const std::function<void()>& work) {
  work();
  asm volatile("");  // no tail call: counting ends on the return from here
}

namespace lode {
namespace {

// Words of a few syllables, some far more frequent than others, in sentences and lines.
std::string made_up_text(std::int64_t words) {
  constexpr const char* kSyllables[] = {"ba", "con", "der", "e",        "fi",  "gra", "ho",  "ing",
                                        "ju", "ka",  "lo",  "men",      "n't", "o",   "per", "qui",
                                        "re", "st",  "ter", "\xc3\xbc", "ver", "wa",  "x",   "y"};
  Rng rng(1, "text");
  std::string text;
  for (std::int64_t i = 0; i < words; ++i) {
    Rng word(rng.below(1 + rng.below(800)), "word");
    for (auto n = 1 + word.below(3); n > 0; --n) text += kSyllables[word.below(std::size(kSyllables))];
    text += i % 97 == 96 ? "\n\n" : i % 11 == 10 ? ", " : i % 17 == 16 ? ". " : " ";
  }
  return text;
}

void encode() {
  const std::string text = made_up_text(20000);
  bool given = false;
  const auto once = [&](std::string& document) { return given ? false : (document = text, given = true); };
  const Tokenizer tokenizer = train_bpe(once, {.vocab_size = 1000});
  lode_measured([&] { tokenizer.encode(text); });
}

void pack() {
  const TempFolder folder;
  const std::string path = folder / "text.txt";
  write_file_atomically(real_files(), path, made_up_text(40000));
  TextEncoder encoder;
  encoder.encode = [](std::string_view text, std::vector<std::int32_t>& tokens) {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  };
  encoder.vocab_size = 257;
  encoder.eos_id = 256;
  encoder.fingerprint = "bytes";
  const auto data = prepare_data(real_files(), find_sources(real_files(), {path}), encoder,
                                 {.read = {.separator = "\n\n"}, .cache = folder / "cache"});
  lode_measured([&] { make_rows(data, {.cutoff_len = 2048}, 0.1); });
}

void chat_template() {
  const BuiltinTemplate& source = find_builtin_template("llama3");
  Json messages = Json::array();
  for (int i = 0; i < 40; ++i) {
    messages.push_back(Json::object(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", format("message {} of a chat", i)}}));
  }
  lode_measured([&] {
    const auto parsed = ChatTemplate::parse(std::string(source.source), "template",
                                            {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    for (int i = 0; i < 10; ++i) parsed.render(messages, {.now = 0});
  });
}

void safetensors() {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  const std::vector<float> values(64, 1.0f);
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 400; ++i) specs.push_back({format("model.layers.{}.weight", i), DType::f32, {8, 8}});
  write_safetensors(real_files(), path, specs, [&](std::size_t) {
    return ConstView{values.data(), DType::f32, 8, 8, 8};
  });
  lode_measured([&] {
    for (int i = 0; i < 5; ++i) SafetensorsFile(real_files(), path);
  });
}

// The second step: the first makes the library's primitives.
void training_step() {
  Engine engine({.threads = 1, .bf16 = false});
  Context& context = engine.context();
  const Json json = parse_json(
      R"({"model_type":"llama","vocab_size":512,"hidden_size":64,"intermediate_size":192,"num_hidden_layers":2,
          "num_attention_heads":4,"num_key_value_heads":2,"tie_word_embeddings":true})",
      "shape");
  const Family& family = find_family("llama", "shape");
  Decoder decoder(context, family.spec(json, "shape"), family.names(), true);
  decoder.initialise(context, 1);
  decoder.parameters().allocate_gradients();
  ParameterUpdater updater(context, decoder.parameters(), make_adamw({}));
  const Step step = bench_step(512, 256, 100);
  context.training = true;
  const auto run = [&] {
    const StepResult result = compute_gradients(context, decoder, step);
    updater.step(context, 1e-4, clip_factor(result.grad_norm, 1.0), {});
  };
  run();
  lode_measured(run);
}

struct FixedRun {
  const char* name;
  void (*run)();
};
constexpr FixedRun kRuns[] = {{"encode", encode},
                              {"pack", pack},
                              {"template", chat_template},
                              {"safetensors", safetensors},
                              {"step", training_step}};

}  // namespace
}  // namespace lode

int main(int argc, char** argv) {
  try {
    for (const auto& run : lode::kRuns) {
      if (argc == 2 && std::strcmp(argv[1], run.name) == 0) return run.run(), 0;
    }
  } catch (const lode::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return lode::exit_code(error.kind());
  }
  std::fprintf(stderr, "usage: lode_fixed_runs encode|pack|template|safetensors|step\n");
  return 2;
}
