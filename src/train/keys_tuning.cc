// Keys of fine-tuning and of chat data.
#include "core/fail.h"
#include "train/keys_build.h"

namespace lode {
namespace {

void add_lora_keys(KeyTable& t) {
  t.text("adapter_name_or_path", &Recipe::adapter_name_or_path,
         "A LoRA adapter in PEFT's format (a folder) that the run goes on with; its rank, alpha and targets "
         "are the adapter's own.")
      .alias("adapters", kSwift)
      .alias("lora_model_dir", kAxolotl);
  t.integer("lora_rank", &Recipe::lora_rank, {.min = 1, .max = 4096}, "Rank of the adapters' products.")
      .alias("lora_r", kAxolotl)
      .alias("r", kPeft);
  t.number("lora_alpha", &Recipe::lora_alpha, kAbove0,
           "Adapters are scaled by lora_alpha / lora_rank. Empty: 2 * lora_rank.")
      .other_default(kSwift, "32");
  t.number("lora_dropout", &Recipe::lora_dropout, kShare, "Dropout of what enters the adapters.")
      .other_default(kSwift, "0.05");
  t.list("lora_target", &Recipe::lora_target,
         "Modules that get an adapter, by the last part of their names (q_proj, v_proj, embed_tokens, "
         "lm_head ...); all: every linear module of the layers.")
      .alias("target_modules", kPeft)
      .alias("lora_target_modules", kAxolotl);
  t.list("additional_target", &Recipe::additional_target,
         "Modules that are trained whole and saved beside the adapters (PEFT's modules_to_save).")
      .alias("modules_to_save", kPeft)
      .alias("lora_modules_to_save", kAxolotl);
  t.boolean("use_rslora", &Recipe::use_rslora,
            "Scale by lora_alpha / sqrt(lora_rank) (rank-stabilised LoRA).")
      .alias("peft_use_rslora", kAxolotl);
}

void add_base_keys(KeyTable& t) {
  Key& bits =
      t.integer("quantization_bit", &Recipe::quantization_bit, {.min = 4, .max = 8},
                "Keep the frozen linear weights quantised in memory: 4 (NF4) or 8 (int8). A GGUF base stays "
                "in its own formats without it.");
  bits.alias("quant_bits", kSwift);
  bits.set = [set = bits.set](Recipe& recipe, const YamlNode& node) {
    set(recipe, node);
    if (recipe.quantization_bit && *recipe.quantization_bit != 4 && *recipe.quantization_bit != 8) {
      fail_expected("4 or 8", node);
    }
  };
  using F = Recipe::FrozenCompute;
  t.choice<F>("frozen_compute", &Recipe::frozen_compute,
              {{F::automatic, "auto", {}}, {F::bf16, "bf16", {}}, {F::int8, "int8", {}}},
              "Arithmetic of products with frozen weights, forward and backward: int8 quantises weights and "
              "activations and is faster on processors with 8-bit dot products; auto is bf16 in bf16 runs.");
  t.integer("freeze_trainable_layers", &Recipe::freeze_trainable_layers, {.min = -100000, .max = 100000},
            "With finetuning_type freeze: how many of the last layers are trained; negative: of the first.");
  t.list("freeze_trainable_modules", &Recipe::freeze_trainable_modules,
         "With finetuning_type freeze: which modules of these layers, by a part of their names; all: whole "
         "layers.");
  t.list("freeze_extra_modules", &Recipe::freeze_extra_modules,
         "With finetuning_type freeze: modules outside the layers that are trained too (embed_tokens, norm, "
         "lm_head).");
  t.number("neftune_noise_alpha", &Recipe::neftune_noise_alpha, kAbove0,
           "Noise on the embeddings in training, uniform within alpha / sqrt(length * width).");
  t.list("add_tokens", &Recipe::add_tokens,
         "Tokens added to the vocabulary, unless they are in it: in rows that no token has, then in new ones "
         "(resize_vocab).");
  t.list("add_special_tokens", &Recipe::add_special_tokens, "The same as special tokens.")
      .alias("new_special_tokens", kSwift);
  Key& resize =
      t.custom("resize_vocab", "true or false",
               "Whether embedding and head get rows for new tokens, at most 63 more so that their number "
               "is a multiple of 64, and are trained whole with lora and freeze. Empty: true when tokens "
               "are added. true also for a larger tokenizer_name_or_path.");
  resize.schema = Json::object({{"type", "boolean"}});
  resize.set = [](Recipe& recipe, const YamlNode& node) {
    recipe.resize_vocab = node.as_bool();
    if (!recipe.resize_vocab) fail_expected("true or false", node);
  };
  resize.get = [](const Recipe& recipe) -> Json {
    return recipe.resize_vocab ? Json(*recipe.resize_vocab) : Json();
  };
}

void add_mixing_keys(KeyTable& t) {
  t.choice<Recipe::Mixing>(
      "mix_strategy", &Recipe::mix_strategy,
      {{Recipe::Mixing::concat, "concat", {}},
       {Recipe::Mixing::interleave_under, "interleave_under", {"first_exhausted"}},
       {Recipe::Mixing::interleave_over, "interleave_over", {"all_exhausted"}}},
      "How several data sets become one: one after another, or drawn by interleave_probs until the "
      "first (under) or the last (over) is used up.");
  Key& probs =
      t.custom("interleave_probs", "list",
               "With mix_strategy interleave_*: the share of each data set, in their order. Empty: equal.");
  probs.alias("interleave_prob", kSwift);
  probs.schema = Json::object({{"type", Json::Array{"string", "number", "array"}}});
  probs.set = [](Recipe& recipe, const YamlNode& node) {
    Recipe scratch;
    std::vector<Key> keys;
    KeyTable(keys).list("", &Recipe::dataset, "").set(scratch, node);
    recipe.interleave_probs.clear();
    for (const std::string& text : scratch.dataset) {
      char* end = nullptr;
      const double value = std::strtod(text.c_str(), &end);
      if (end == text.c_str() || *end != '\0' || !(value > 0 && value <= 1)) {
        fail(ErrorKind::usage, "expected numbers above 0 and at most 1, found \"{}\"", text);
      }
      recipe.interleave_probs.push_back(value);
    }
  };
  probs.get = [](const Recipe& recipe) -> Json {
    return Json::Array(recipe.interleave_probs.begin(), recipe.interleave_probs.end());
  };
}

}  // namespace

void add_tuning_keys(KeyTable& t) {
  t.group("model");
  Key& stage = t.choice<Recipe::Stage>(
      "stage", &Recipe::stage, {{Recipe::Stage::pt, "pt", {}}, {Recipe::Stage::sft, "sft", {}}},
      "What is trained: pt is next-token prediction on plain text, sft answers of chats and "
      "instructions.");
  refuse_choices(stage, {"rm", "ppo", "dpo", "kto"});
  Key& tuning = t.choice<Recipe::Tuning>("finetuning_type", &Recipe::finetuning_type,
                                         {{Recipe::Tuning::full, "full", {"none"}},
                                          {Recipe::Tuning::freeze, "freeze", {}},
                                          {Recipe::Tuning::lora, "lora", {"qlora"}}},
                                         "Which weights are trained: all (full), some layers (freeze), or "
                                         "low-rank adapters beside frozen weights (lora).");
  refuse_choices(tuning, {"oft"});
  tuning.alias("tuner_type", kSwift)
      .alias("train_type", kSwift)
      .alias("adapter", kAxolotl)
      .other_default(kLlamaFactory, "lora")
      .other_default(kSwift, "lora");
  t.group("fine-tuning");
  add_lora_keys(t);
  add_base_keys(t);
}

void add_chat_keys(KeyTable& t) {
  t.text("template", &Recipe::chat_template,
         "Name of a chat template for models that come without one; the model's own wins.")
      .alias("chat_template", kAxolotl);
  t.text("default_system", &Recipe::default_system, "System message of chats that have none.")
      .alias("system", kSwift);
  t.boolean("train_on_prompt", &Recipe::train_on_prompt,
            "The loss counts every token, not the answers alone.")
      .alias("train_on_inputs", kAxolotl);
  t.boolean("mask_history", &Recipe::mask_history, "The loss counts the last answer of a chat alone.");
  Key& thinking = t.custom("enable_thinking", "true or false",
                           "Handed to the chat template: whether answers may begin with a thinking block.");
  thinking.schema = Json::object({{"type", "boolean"}});
  thinking.set = [](Recipe& recipe, const YamlNode& node) {
    recipe.enable_thinking = node.as_bool();
    if (!recipe.enable_thinking) fail_expected("true or false", node);
  };
  thinking.get = [](const Recipe& recipe) -> Json {
    return recipe.enable_thinking ? Json(*recipe.enable_thinking) : Json();
  };
  add_mixing_keys(t);
}

}  // namespace lode
