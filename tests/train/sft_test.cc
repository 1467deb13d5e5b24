// Fine-tuning of a tiny model on tiny chats.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "io/weights.h"
#include "kernels/int8_matmul.h"
#include "text/bpe_trainer.h"
#include "train/trainer_testing.h"

namespace lode {
namespace {

constexpr auto kLlama =
    R"({"model_type": "llama", "vocab_size": 320, "hidden_size": 32, "intermediate_size": 48,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 128,
  "tie_word_embeddings": true})";
constexpr std::string_view kNames[] = {"cat", "dog", "day", "mat"};
constexpr int kNumChats = 16;

Tokenizer make_tokenizer(std::int64_t vocab_size, const std::string& eos = "<|im_end|>") {
  int left = 40;
  const auto source = [&](std::string& text) {
    text = "user assistant the cat sat on a mat and saw that big dog to me all day we run";
    return left-- > 0;
  };
  BpeTrainOptions options;
  options.vocab_size = vocab_size;
  options.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  options.named = {"", eos, "<|endoftext|>"};
  return train_bpe(source, options);
}

std::string make_chats() {
  std::string text;
  for (int i = 0; i < kNumChats; ++i) {
    const std::string name(kNames[i % 4]), extra = i % 3 == 0 ? " and run" : "";
    const Json messages = Json::Array{
        Json::object({{"role", "user"}, {"content", format("we saw the {}{}", name, extra)}}),
        Json::object({{"role", "assistant"}, {"content", format("that big {} sat on me{}", name, extra)}})};
    text += Json::object({{"messages", messages}}).dump() + "\n";
  }
  return text;
}

// A base made by a few steps from scratch, and runs of stage sft on it.
class Sft : public testing::Test {
 protected:
  Sft() {
    write_file_atomically(real_files(), run_ / "chat.json", kLlama);
    write_file_atomically(real_files(), run_ / "chats.jsonl", make_chats());
    make_tokenizer(320).save(real_files(), run_ / "chat_tok");
    base_ = run_.train({"model_name_or_path=@/chat.json", "tokenizer_name_or_path=@/chat_tok", "max_steps=60",
                        "learning_rate=1e-2", "output_dir=@/base"})
                .result;
  }

  Overrides with(const Overrides& more, const Overrides& last = {}) const {
    Overrides all = {"model_name_or_path=" + base_,
                     "train_from_scratch=false",
                     "tokenizer_name_or_path=",
                     "dataset=@/chats.jsonl",
                     "stage=sft",
                     "template=chatml",
                     "cutoff_len=64",
                     "learning_rate=1e-2",
                     "lr_scheduler_type=constant"};
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), last.begin(), last.end());
    return all;
  }
  std::vector<double> losses(const std::string& output = "out") const {
    std::vector<double> found;
    for (const Json& record : metrics_of(run_ / output)) {
      if (record.find("loss") != nullptr && record.find("grad_norm") != nullptr)
        found.push_back(record.at("loss").as_double());
    }
    return found;
  }
  std::vector<double> losses_of(const Overrides& overrides) const {
    run_.train(overrides);
    return losses();
  }
  bool exists(const std::string& path) const { return real_files().exists(path); }

  TinyRun run_;
  std::string base_;
};

const Overrides kLora = {"finetuning_type=lora", "lora_rank=4"};

void expect_close(const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  ASSERT_FALSE(a.empty()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << what << ", step " << i + 1;
}

std::map<std::string, std::string> tensor_bytes(const std::string& folder) {
  const WeightSet weights(real_files(), folder);
  std::map<std::string, std::string> bytes;
  for (const auto& [name, entry] : weights.tensors()) {
    const auto data = entry.file->bytes(*entry.info);
    bytes[std::string(name)] =
        entry.info->dtype + std::string(reinterpret_cast<const char*>(data.data()), data.size());
  }
  return bytes;
}

TEST_F(Sft, LoraLearnsAndSavesAnAdapterAlone) {
  const auto outcome = run_.train(with(kLora, {"max_steps=40", "learning_rate=2e-2"}));
  const auto loss = losses();
  ASSERT_EQ(loss.size(), 40u);
  EXPECT_LT(loss.back(), 0.8 * loss.front());
  EXPECT_TRUE(exists(join_path(outcome.result, "adapter_config.json")));
  EXPECT_TRUE(exists(join_path(outcome.result, "adapter_model.safetensors")));
  EXPECT_FALSE(exists(join_path(outcome.result, "model.safetensors")));
  const std::string file = join_path(outcome.result, "adapter_config.json");
  const Json config = parse_json(real_files().read(file), file);
  EXPECT_EQ(config.at("peft_type").as_string(), "LORA");
  EXPECT_EQ(config.at("r").as_int(), 4);
  EXPECT_EQ(config.at("lora_alpha").as_double(), 8);
  EXPECT_EQ(config.at("target_modules").size(), 7u);
  // Two matrices for each of seven modules in two layers.
  EXPECT_EQ(tensor_bytes(join_path(outcome.result, "adapter_model.safetensors")).size(), 28u);
  EXPECT_NE(run_.log().find("trained: "), std::string::npos) << "the coverage table";
  EXPECT_NE(run_.log().find("q_proj"), std::string::npos);
}

TEST_F(Sft, AResumedRunIsTheUnbrokenRun) {
  for (const Overrides& more : {Overrides{"lora_dropout=0.2"}, Overrides{"quantization_bit=4"},
                                Overrides{"additional_target=embed_tokens", "use_rslora=true"}}) {
    Overrides recipe = with(kLora, more);
    for (const char* key : {"max_steps=9", "save_steps=3", "per_device_train_batch_size=2",
                            "gradient_accumulation_steps=2", "neftune_noise_alpha=1"}) {
      recipe.emplace_back(key);
    }
    recipe.emplace_back("overwrite_output_dir=true");
    const std::string result = run_.train(recipe).result;
    const RunTrace unbroken = trace_of(run_ / "out");
    ASSERT_GE(unbroken.metrics.size(), 9u);
    const auto adapter = tensor_bytes(join_path(result, "adapter_model.safetensors"));
    recipe.pop_back();
    for (const int step : {3, 6}) {
      Overrides again = recipe;
      again.push_back("resume_from_checkpoint=" + run_ / format("out/checkpoint-{}", step));
      run_.train(again);
      const RunTrace resumed = trace_of(run_ / "out");
      EXPECT_EQ(resumed.metrics, unbroken.metrics) << more.front() << " from " << step;
      EXPECT_EQ(resumed.tensors, unbroken.tensors) << more.front() << " from " << step;
      EXPECT_EQ(resumed.state, unbroken.state) << more.front() << " from " << step;
      EXPECT_EQ(tensor_bytes(join_path(result, "adapter_model.safetensors")), adapter);
    }
  }
}

TEST_F(Sft, AnySplitOfTheBatchGivesTheSameLosses) {
  for (const bool packing : {true, false}) {
    const Overrides one = with(kLora, {"max_steps=6", "per_device_train_batch_size=4",
                                       "overwrite_output_dir=true", format("packing={}", packing)});
    const auto whole = losses_of(one);
    for (const auto& [rows, batches] : {std::pair{2, 2}, {1, 4}}) {
      const auto split = losses_of(with(one, {format("per_device_train_batch_size={}", rows),
                                              format("gradient_accumulation_steps={}", batches)}));
      expect_close(split, whole, format("packing {}, {} x {}", packing, rows, batches));
    }
  }
}

TEST_F(Sft, PackedIsUnpacked) {
  // Every step sees every chat.
  const Overrides all = with(kLora, {"max_steps=6", "overwrite_output_dir=true",
                                     format("per_device_train_batch_size={}", kNumChats), "cutoff_len=128"});
  const auto unpacked = losses_of(with(all, {"packing=false"}));
  const auto packed = losses_of(with(all, {"packing=true"}));
  EXPECT_NE(run_.log().find("rows"), std::string::npos);
  expect_close(packed, unpacked, "packed");
  EXPECT_LT(packed.back(), packed.front());
}

TEST_F(Sft, FreezeTrainsOnlyWhatItSays) {
  const auto outcome =
      run_.train(with({"finetuning_type=freeze", "freeze_trainable_layers=1"},
                      {"freeze_trainable_modules=mlp", "freeze_extra_modules=norm", "max_steps=4"}));
  const auto before = tensor_bytes(base_), after = tensor_bytes(outcome.result);
  ASSERT_EQ(before.size(), after.size());
  int changed = 0;
  for (const auto& [name, bytes] : before) {
    const bool trained = name.starts_with("model.layers.1.mlp.") || name == "model.norm.weight";
    EXPECT_EQ(after.at(name) != bytes, trained) << name;
    changed += trained;
  }
  EXPECT_EQ(changed, 4);
  const auto loss = losses();
  EXPECT_LT(loss.back(), loss.front());
}

TEST_F(Sft, QuantisedBasesLearn) {
  std::vector<double> first;
  for (const int bits : {4, 8}) {
    const auto loss = losses_of(with(kLora, {format("quantization_bit={}", bits), "max_steps=40",
                                             "learning_rate=2e-2", "overwrite_output_dir=true"}));
    EXPECT_LT(loss.back(), 0.85 * loss.front()) << bits;
    first.push_back(loss.front());
  }
  EXPECT_NE(first[0], first[1]) << "the base is quantised in two ways";
}

TEST_F(Sft, Int8ProductsLearnTheSame) {
  const Overrides recipe = with(kLora, {"max_steps=20", "learning_rate=1e-3", "overwrite_output_dir=true"});
  const auto floats = losses_of(recipe);
  const auto int8 = losses_of(with(recipe, {"frozen_compute=int8"}));
  ASSERT_EQ(int8.size(), floats.size());
  for (std::size_t i = 0; i < int8.size(); ++i) EXPECT_NEAR(int8[i], floats[i], 0.01 * floats[i]) << i;
  const bool native = int8_matmul_path().native;
  EXPECT_EQ(int8 != floats, native);
  EXPECT_EQ(losses_of(with(recipe, {"frozen_compute=int8"})), int8) << "from run to run";
  const std::string file = run_ / "out/run.json";
  const std::string record = real_files().read(file);
  EXPECT_NE(record.find("frozen products"), std::string::npos);
  EXPECT_EQ(record.find("8-bit dot products: ") != std::string::npos, native) << record;
}

TEST_F(Sft, GoesOnFromAnAdapter) {
  const Overrides all =
      with(kLora, {"packing=false", format("per_device_train_batch_size={}", kNumChats), "max_steps=7"});
  run_.train(with(all, {"save_steps=6", "output_dir=@/first"}));
  const auto first = losses("first");
  ASSERT_EQ(first.size(), 7u);
  const Overrides on = {"finetuning_type=lora", "adapter_name_or_path=" + run_ / "first/checkpoint-6",
                        "packing=false", format("per_device_train_batch_size={}", kNumChats), "max_steps=3"};
  const auto second = losses_of(with(on));
  EXPECT_NEAR(second.front(), first.back(), 1e-6) << "the adapter's loss, not the base's";
  EXPECT_LT(second.front(), first.front());
  EXPECT_LT(second.back(), second.front());
}

TEST_F(Sft, RefusesAnotherTokenizer) {
  const std::string adapter = run_.train(with(kLora, {"max_steps=1"})).result;
  make_tokenizer(300).save(real_files(), run_ / "other_tok");
  const Overrides on = {"finetuning_type=lora", "tokenizer_name_or_path=@/other_tok", "max_steps=2"};
  EXPECT_NE(run_.error(with(on, {"adapter_name_or_path=" + adapter, "output_dir=@/b"}))
                .find("trained with another tokenizer"),
            std::string::npos);
  EXPECT_NE(run_.error(with(on, {"resume_from_checkpoint=" + adapter})).find("tokenizer"), std::string::npos);
}

TEST_F(Sft, TheNamedTemplateStaysWithTheModel) {
  make_tokenizer(320, "<|endoftext|>").save(real_files(), run_ / "plain_tok");
  for (const Overrides& tuning : {kLora, Overrides{"finetuning_type=full"}}) {
    const Overrides once = {"tokenizer_name_or_path=@/plain_tok", "max_steps=1", "overwrite_output_dir=true"};
    const auto saved = Tokenizer::load(real_files(), run_.train(with(tuning, once)).result);
    ASSERT_TRUE(saved.chat_template());
    EXPECT_NE(saved.chat_template()->find("<|im_start|>"), std::string::npos);
    const auto turn_end = saved.token_id("<|im_end|>");
    ASSERT_TRUE(turn_end);
    EXPECT_EQ(saved.stop_ids(), (std::vector<std::int32_t>{*saved.eos_id(), *turn_end}));
    EXPECT_EQ(saved.fingerprint(), Tokenizer::load(real_files(), run_ / "plain_tok").fingerprint());
  }
}

TEST_F(Sft, RefusesNamesThatDoNotExist) {
  const std::string error = run_.error(with({"finetuning_type=lora", "lora_target=q_proj,query"}));
  EXPECT_NE(error.find("query"), std::string::npos);
  EXPECT_NE(error.find("v_proj"), std::string::npos) << error;
  EXPECT_NE(run_.error(with({"quantization_bit=4"})).find("needs finetuning_type: lora"), std::string::npos);
}

}  // namespace
}  // namespace lode
