// Keys of the batch: micro-batches and how many make a step.
#include "core/fail.h"
#include "train/keys_build.h"

namespace lode {
namespace {

constexpr std::int64_t kMost = 1 << 20;

void add_micro_batch_key(KeyTable& t) {
  Key& key =
      t.custom("per_device_train_batch_size", "integer",
               "Rows of cutoff_len tokens (packing) or samples in a micro-batch. auto: the most that fit "
               "memory_limit, found by rehearsing steps; with global_batch_size the step stays the same on "
               "any machine.");
  std::vector<Key> scratch;
  const Key& number = KeyTable(scratch).integer(key.name.c_str(), &Recipe::per_device_train_batch_size,
                                                {.min = 1, .max = kMost}, "");
  key.range = number.range + ", or auto";
  key.schema = Json::object({{"anyOf", Json::Array{number.schema, Json::object({{"const", "auto"}})}}});
  key.set = [set = number.set](Recipe& recipe, const YamlNode& node) {
    if (node.is_scalar() && node.text == "auto") {
      recipe.per_device_train_batch_size = Recipe::kAutoBatch;
    } else if (node.is_scalar() && node.as_int()) {
      set(recipe, node);
    } else {
      fail_expected("an integer or auto", node);
    }
  };
  key.get = [](const Recipe& recipe) -> Json {
    if (recipe.per_device_train_batch_size == Recipe::kAutoBatch) return "auto";
    return recipe.per_device_train_batch_size;
  };
  key.alias("micro_batch_size", kMegatron).alias("batch_size", "some guides").other_default(kSwift, "1");
}

}  // namespace

void add_batch_keys(KeyTable& t) {
  t.group("step");
  add_micro_batch_key(t);
  t.integer("per_device_eval_batch_size", &Recipe::per_device_eval_batch_size, {.min = 1, .max = kMost},
            "The same for evaluation.")
      .alias("eval_batch_size", kAxolotl);
  Key& times = t.integer(
      "gradient_accumulation_steps", &Recipe::gradient_accumulation_steps, {.min = 1, .max = kMost},
      "Micro-batches per optimizer step. The loss is divided by the target tokens of all of them together.");
  times.alias("gradient_accumulation", "some guides").other_default(kSwift, "as many as make 16 samples");
  // It follows from the other two keys, so that a recipe that is read back can be cut another way.
  times.get = [](const Recipe& recipe) -> Json {
    return recipe.global_batch_size ? Json() : Json(recipe.gradient_accumulation_steps);
  };
  t.integer("global_batch_size", &Recipe::global_batch_size, {.min = 1, .max = kMost},
            "Rows or samples of an optimizer step, instead of gradient_accumulation_steps: a multiple of "
            "per_device_train_batch_size, or of whatever auto chooses.");
}

}  // namespace lode
