// Tokens that a base does not have: embedding and head grow, are trained, saved, loaded again and exported.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "export/export.h"
#include "io/weights.h"
#include "text/gguf_tokenizer.h"
#include "train/trainer_testing.h"

namespace lode {
namespace {

constexpr std::int64_t kRows = 300, kGrown = 320, kTokens = 302;

std::string config(bool tied) {
  return format(
      R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": 32, "intermediate_size": 64,
           "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
           "max_position_embeddings": 128, "tie_word_embeddings": {}}})",
      kRows, tied);
}

std::string make_chats() {
  std::string text;
  for (const std::string name : {"cat", "dog", "day", "mat", "big", "run"}) {
    const Json messages =
        Json::Array{Json::object({{"role", "user"}, {"content", "we saw the " + name}}),
                    Json::object({{"role", "assistant"}, {"content", "that " + name + " sat on me"}})};
    text += Json::object({{"messages", messages}}).dump() + "\n";
  }
  return text;
}

struct Numbers {
  Shape shape;
  std::vector<float> values;
};

std::map<std::string, Numbers> tensors_of(const std::string& path) {
  const WeightSet weights(real_files(), path);
  std::map<std::string, Numbers> found;
  for (const auto& [name, entry] : weights.tensors()) {
    Numbers& numbers = found[std::string(name)];
    numbers.shape = entry.info->shape;
    const ConstView view = entry.file->view(*entry.info);
    for (std::int64_t r = 0; r < view.rows; ++r)
      numbers.values.insert(numbers.values.end(), view.row<float>(r), view.row<float>(r) + view.cols);
  }
  return found;
}

Json json_at(const std::string& path) {
  return parse_json(real_files().read(path), path);
}

// Bases whose every row has a token, without the tokens of the chat template.
class Vocabulary : public testing::Test {
 protected:
  Vocabulary() { write_file_atomically(real_files(), run_ / "chats.jsonl", make_chats()); }

  const std::string& base(bool tied) {
    std::string& path = bases_[tied];
    if (path.empty()) {
      const std::string name = tied ? "tied" : "untied";
      write_file_atomically(real_files(), run_ / (name + ".json"), config(tied));
      path = run_.train({"model_name_or_path=@/" + name + ".json", "max_steps=12", "learning_rate=1e-2",
                         "output_dir=@/base_" + name})
                 .result;
    }
    return path;
  }
  static Overrides on(const std::string& base, const Overrides& more, const Overrides& last = {}) {
    Overrides all = {"model_name_or_path=" + base,
                     "train_from_scratch=false",
                     "tokenizer_name_or_path=",
                     "dataset=@/chats.jsonl",
                     "stage=sft",
                     "template=chatml",
                     "packing=false",
                     "per_device_train_batch_size=6",
                     "cutoff_len=64",
                     "learning_rate=1e-2",
                     "lr_scheduler_type=constant",
                     "add_special_tokens=<|im_start|>,<|im_end|>",
                     "max_steps=4"};
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), last.begin(), last.end());
    return all;
  }
  std::vector<double> losses(const std::string& output) const {
    std::vector<double> found;
    for (const Json& record : metrics_of(run_ / output)) {
      if (record.find("grad_norm") != nullptr) found.push_back(record.at("loss").as_double());
    }
    return found;
  }
  // Logits of a prompt with a new token by a model, and by its export in another format.
  std::vector<float> logits_of(const std::string& model, const std::string& adapter = {}) const {
    Engine engine({.threads = 1, .bf16 = false});
    Model loaded = load_model(real_files(), engine, model, adapter);
    EXPECT_EQ(loaded.decoder->spec().vocab_size, kGrown) << model;
    const auto tokens = loaded.tokenizer.encode("<|im_start|>user the cat<|im_end|>");
    EXPECT_EQ(tokens.front(), kRows);
    EXPECT_EQ(tokens.back(), kRows + 1);
    const std::int32_t length[] = {static_cast<std::int32_t>(tokens.size())};
    const std::int64_t sample[] = {0};
    const Batch batch(tokens, std::vector<std::int32_t>(tokens.size(), kIgnoreLabel),
                      std::vector<float>(tokens.size(), 0.0f), Segments(length, sample, length[0]));
    const Tensor logits =
        loaded.decoder->last_logits(engine.context(), loaded.decoder->forward(engine.context(), batch));
    return {logits.view().row<float>(0), logits.view().row<float>(0) + logits.cols()};
  }
  ExportReport exported(ExportFormat format, const std::string& out, const std::string& model,
                        const std::string& adapter = {}) const {
    Engine engine({.threads = 1, .bf16 = false});
    Model loaded = load_model(real_files(), engine, model, adapter);
    ExportOptions options;
    options.format = format;
    options.out = out;
    options.gguf = QuantFormat::f32;
    options.prompts = {"<|im_start|>user the cat<|im_end|>", "that big dog"};
    options.check_tokens = 4;
    return export_model({real_files(), engine.context(), loaded.config, *loaded.decoder, loaded.tokenizer,
                         loaded.base, loaded.adapter},
                        options);
  }

  TinyRun run_;
  std::map<bool, std::string> bases_;
};

const Overrides kLora = {"finetuning_type=lora", "lora_rank=4"};

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double bound,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_LE(largest_difference(a, b), bound) << what;
}

// Rows of the base stay, new ones begin near their mean, and no two are equal.
TEST_F(Vocabulary, NewRowsBeginNearTheMean) {
  for (const bool tied : {true, false}) {
    const std::string out =
        run_.train(on(base(tied), {"learning_rate=1e-30", "max_steps=1", "overwrite_output_dir=true"}))
            .result;
    const auto before = tensors_of(base(tied)), after = tensors_of(out);
    ASSERT_EQ(after.contains("lm_head.weight"), !tied);
    for (const auto& [name, numbers] : after) {
      const std::vector<float>& was = before.at(name).values;
      if (name != "model.embed_tokens.weight" && name != "lm_head.weight") {
        EXPECT_EQ(numbers.values, was) << name;
        continue;
      }
      EXPECT_EQ(numbers.shape, (Shape{kGrown, 32}));
      EXPECT_TRUE(std::equal(was.begin(), was.end(), numbers.values.begin())) << name;
      for (std::size_t c = 0; c < 32; ++c) {
        double mean = 0, square = 0;
        for (std::size_t r = 0; r < kRows; ++r) mean += static_cast<double>(was[r * 32 + c]) / kRows;
        for (std::size_t r = 0; r < kRows; ++r)
          square += std::pow(static_cast<double>(was[r * 32 + c]) - mean, 2) / kRows;
        std::vector<float> column;
        for (std::size_t r = kRows; r < kGrown; ++r) {
          column.push_back(numbers.values[r * 32 + c]);
          // A drawn row is some deviations from the mean, times a normal value, times 3e-5.
          EXPECT_NEAR(column.back(), mean, 4e-4 * std::sqrt(square) + 1e-9) << name;
        }
        std::ranges::sort(column);
        EXPECT_GT(std::unique(column.begin(), column.end()) - column.begin(), 10)
            << "no two tokens are alike";
      }
    }
    EXPECT_EQ(json_at(join_path(out, "config.json")).at("vocab_size").as_int(), kGrown);
    const Tokenizer tokenizer = Tokenizer::load(real_files(), out);
    EXPECT_EQ(tokenizer.vocab_size(), kTokens);
    EXPECT_EQ(tokenizer.token_id("<|im_start|>"), kRows);
    EXPECT_TRUE(tokenizer.is_special(kRows + 1));
  }
  EXPECT_NE(run_.log().find("320 rows"), std::string::npos) << "a fact says it";
}

TEST_F(Vocabulary, EveryMethodLearnsAndResumesToTheBit) {
  for (const bool tied : {true, false}) {
    for (const Overrides& method :
         {Overrides{"finetuning_type=full"}, Overrides{"finetuning_type=freeze", "freeze_trainable_layers=1"},
          kLora, Overrides{"finetuning_type=lora", "quantization_bit=4"}}) {
      const std::string what = format("{} tied {}", method.back(), tied);
      const Overrides recipe = on(base(tied), method, {"save_steps=2", "seed=7"});
      Overrides first = recipe;
      first.emplace_back("overwrite_output_dir=true");
      const std::string result = run_.train(first).result;
      const auto loss = losses("out");
      EXPECT_LT(loss.back(), loss.front()) << what;
      const RunTrace unbroken = trace_of(run_ / "out");
      Overrides again = recipe;
      again.push_back("resume_from_checkpoint=" + run_ / "out/checkpoint-2");
      run_.train(again);
      EXPECT_EQ(trace_of(run_ / "out"), unbroken) << what;
    }
  }
}

TEST_F(Vocabulary, FreezeTrainsTheNewRows) {
  for (const bool tied : {true, false}) {
    const std::string out = run_.train(on(base(tied), {"finetuning_type=freeze", "freeze_trainable_layers=1",
                                                       "overwrite_output_dir=true"}))
                                .result;
    const auto before = tensors_of(base(tied)), after = tensors_of(out);
    for (const auto& [name, numbers] : after) {
      const bool trained = name.starts_with("model.layers.1.") || name == "model.embed_tokens.weight" ||
                           name == "lm_head.weight";
      EXPECT_EQ(numbers.values != before.at(name).values, trained) << name;
    }
  }
}

TEST_F(Vocabulary, AdaptersHoldTheTablesWhole) {
  for (const bool tied : {false, true}) {
    const std::string out = run_.train(on(base(tied), kLora, {"overwrite_output_dir=true"})).result;
    const auto tensors = tensors_of(join_path(out, "adapter_model.safetensors"));
    const Numbers& table = tensors.at("base_model.model.model.embed_tokens.weight");
    const Numbers& head = tensors.at("base_model.model.lm_head.weight");
    EXPECT_EQ(table.shape, (Shape{kGrown, 32}));
    EXPECT_EQ(head.shape, (Shape{kGrown, 32}));
    EXPECT_EQ(table.values == head.values, tied) << "one copy under both names, or two";
    EXPECT_EQ(tensors.size(), 2u + 28u);
    const Json adapter = json_at(join_path(out, "adapter_config.json"));
    EXPECT_EQ(adapter.at("modules_to_save").dump(), R"(["embed_tokens", "lm_head"])");
    EXPECT_EQ(adapter.find("ensure_weight_tying") != nullptr, tied);
    EXPECT_EQ(adapter.at("base_model_name_or_path").as_string(), base(tied));
    const std::string log = run_.log();
    EXPECT_NE(log.find("new tokens: trained and saved whole"), std::string::npos);
    EXPECT_EQ(log.find("tied to the embedding") != std::string::npos, tied);
  }
}

// The adapter on its base that has fewer rows; merged; alone; as GGUF.
TEST_F(Vocabulary, AdaptersAreLoadedOnTheirBaseAndExported) {
  for (const bool tied : {true, false}) {
    const std::string out = run_.train(on(base(tied), kLora, {"overwrite_output_dir=true"})).result;
    const std::string at = run_ / (tied ? "tied_" : "untied_");
    const auto logits = logits_of(base(tied), out);
    expect_near(logits_of(out), logits, 0, "a checkpoint names its base");
    exported(ExportFormat::safetensors, at + "merged", base(tied), out);
    expect_near(logits_of(at + "merged"), logits, 1e-4, "merged");
    EXPECT_EQ(tensors_of(at + "merged").contains("lm_head.weight"), !tied) << "a tied head stays tied";
    const Json json = json_at(at + "merged/config.json");
    EXPECT_EQ(json.at("vocab_size").as_int(), kGrown);
    EXPECT_EQ(json.at("tie_word_embeddings").as_bool(), tied);
    exported(ExportFormat::peft, at + "adapter", base(tied), out);
    expect_near(logits_of(base(tied), at + "adapter"), logits, 0, "the adapter alone");
    EXPECT_EQ(Tokenizer::load(real_files(), at + "adapter").vocab_size(), kTokens);
    exported(ExportFormat::gguf, at + "model.gguf", base(tied), out);
    expect_near(logits_of(at + "model.gguf"), logits, 1e-4, "GGUF");
  }
}

TEST_F(Vocabulary, FullModelsAreExported) {
  const std::string out = run_.train(on(base(true), {})).result;
  const auto logits = logits_of(out);
  exported(ExportFormat::safetensors, run_ / "folder", out);
  expect_near(logits_of(run_ / "folder"), logits, 0, "safetensors");
  exported(ExportFormat::gguf, run_ / "model.gguf", out);
  expect_near(logits_of(run_ / "model.gguf"), logits, 1e-5, "GGUF");
  // As many tokens as rows, for readers that compare.
  const GgufTokenizerData data = read_gguf_tokenizer(GgufFile(real_files(), run_ / "model.gguf"));
  EXPECT_EQ(data.tokens.size(), static_cast<std::size_t>(kGrown));
  EXPECT_EQ(data.tokens.back(), "[PAD319]");
  EXPECT_EQ(data.token_types.back(), 5);
  const Tokenizer tokenizer = tokenizer_from_gguf(GgufFile(real_files(), run_ / "model.gguf"));
  EXPECT_EQ(tokenizer.vocab_size(), kTokens);
  EXPECT_EQ(tokenizer.fingerprint(), Tokenizer::load(real_files(), out).fingerprint());
}

TEST_F(Vocabulary, GrowsAGgufBase) {
  for (const bool tied : {true, false}) {
    const std::string gguf = run_ / (tied ? "tied.gguf" : "untied.gguf");
    Engine engine({.threads = 1, .bf16 = false});
    Model model = load_model(real_files(), engine, base(tied));
    export_model(
        {real_files(), engine.context(), model.config, *model.decoder, model.tokenizer, model.base, ""},
        {.format = ExportFormat::gguf, .out = gguf, .gguf = QuantFormat::q8_0, .check_tokens = 2});
    const std::string out = run_.train(on(gguf, kLora, {"overwrite_output_dir=true"})).result;
    const auto loss = losses("out");
    EXPECT_LT(loss.back(), loss.front());
    const auto logits = logits_of(gguf, out);
    const std::string merged = run_ / (tied ? "tied_merged" : "untied_merged");
    exported(ExportFormat::safetensors, merged, gguf, out);
    expect_near(logits_of(merged), logits, 0.1, "merged, in bf16");
  }
}

TEST_F(Vocabulary, GoesOnFromAnAdapterThatGrew) {
  run_.train(on(base(true), kLora, {"output_dir=@/first", "save_steps=3"}));
  const std::string adapter = run_ / "first/checkpoint-3";
  const Overrides more = {"finetuning_type=lora", "adapter_name_or_path=" + adapter, "max_steps=2"};
  const auto first = losses("first");
  for (const Overrides& own :
       {Overrides{}, Overrides{"add_special_tokens=", "tokenizer_name_or_path=" + adapter}}) {
    Overrides recipe = on(base(true), more, own);
    recipe.emplace_back("overwrite_output_dir=true");
    const std::string out = run_.train(recipe).result;
    EXPECT_NEAR(losses("out").front(), first.back(), 1e-6) << "the adapter's rows, not new ones";
    EXPECT_NE(json_at(join_path(out, "adapter_config.json")).find("ensure_weight_tying"), nullptr);
  }
  Overrides third =
      on(base(true), more, {"add_special_tokens=<|im_start|>,<|im_end|>", "overwrite_output_dir=true"});
  std::string tokens = "add_tokens=";
  for (int i = 0; i < 20; ++i) tokens += format("<{}>,", i);
  third.push_back(tokens);
  EXPECT_NE(run_.error(third).find("was made for fewer tokens"), std::string::npos) << run_.error(third);
}

TEST_F(Vocabulary, SaysWhatItRefuses) {
  const std::string refused = run_.error(on(base(true), {"resize_vocab=false"}));
  EXPECT_NE(refused.find("would have 302 ids, the model has 300 rows"), std::string::npos) << refused;
  EXPECT_NE(refused.find("resize_vocab: false"), std::string::npos) << refused;
  // A tokenizer with tokens of its own, made elsewhere.
  Tokenizer::load(real_files(), base(true))
      .add_special_tokens({"<|im_start|>", "<|im_end|>"})
      .save(real_files(), run_ / "larger");
  const Overrides larger = {"add_special_tokens=", "tokenizer_name_or_path=@/larger"};
  const std::string other = run_.error(on(base(true), larger));
  EXPECT_NE(other.find("do not belong together; resize_vocab: true"), std::string::npos) << other;
  const std::string out = run_.train(on(base(true), larger, {"resize_vocab=true"})).result;
  EXPECT_EQ(logits_of(out).size(), static_cast<std::size_t>(kGrown));
}

// Rows that no token has are used first; then nothing grows, but the rows are trained.
TEST_F(Vocabulary, TakesFreeRowsFirst) {
  const std::string grown = run_.train(on(base(false), {}, {"output_dir=@/grown"})).result;
  const Overrides more = on(grown, kLora, {"add_special_tokens=<|more|>"});
  const std::string out = run_.train(more).result;
  const auto tensors = tensors_of(join_path(out, "adapter_model.safetensors"));
  EXPECT_EQ(tensors.at("base_model.model.lm_head.weight").shape, (Shape{kGrown, 32}));
  EXPECT_EQ(Tokenizer::load(real_files(), out).token_id("<|more|>"), kTokens);
  Overrides untrained = more;
  untrained.emplace_back("resize_vocab=false");
  untrained.emplace_back("output_dir=@/untrained");
  const std::string other = run_.train(untrained).result;
  EXPECT_EQ(tensors_of(join_path(other, "adapter_model.safetensors")).size(), 28u);
  // An adapter without the tables cannot learn further tokens.
  const std::string refused = run_.error(on(grown, {"finetuning_type=lora", "adapter_name_or_path=" + other},
                                            {"add_special_tokens=<|more|>", "output_dir=@/on"}));
  EXPECT_NE(refused.find("was made for fewer tokens"), std::string::npos) << refused;
}

}  // namespace
}  // namespace lode
