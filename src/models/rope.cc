#include "models/rope.h"

#include <algorithm>
#include <cmath>

namespace lode {
namespace {

using Scaling = RotarySpec::Scaling;

struct Type {
  std::string_view name;
  Scaling scaling;
};
constexpr Type kTypes[] = {{"default", Scaling::none},      {"linear", Scaling::linear},
                           {"dynamic", Scaling::dynamic},   {"llama3", Scaling::llama3},
                           {"longrope", Scaling::longrope}, {"yarn", Scaling::yarn}};

Scaling find_type(const ConfigReader& reader, std::string_view name) {
  std::string known;
  for (const Type& type : kTypes) {
    if (type.name == name) return type.scaling;
    known += format("{}{}", known.empty() ? "" : ", ", type.name);
  }
  reader.refuse("rope_type", format("\"{}\" is not supported; known: {}", name, known));
}

// 0.1 m ln(s) + 1: how much longer contexts sharpen attention.
double yarn_scale(double factor, double m) {
  return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1;
}

void read_yarn(const ConfigReader& reader, RotarySpec& rotary) {
  rotary.beta_fast = reader.positive("beta_fast", 32);
  rotary.beta_slow = reader.positive("beta_slow", 1);
  rotary.truncate = reader.boolean("truncate", true);
  if (!(rotary.theta > 1)) reader.refuse("rope_theta", "rope_type yarn needs one above 1");
  const double mscale = reader.number("mscale", 0), all = reader.number("mscale_all_dim", 0);
  const bool both = mscale != 0 && all != 0;
  const double otherwise = both ? yarn_scale(rotary.factor, mscale) / yarn_scale(rotary.factor, all)
                                : yarn_scale(rotary.factor, 1);
  rotary.attention_factor = reader.positive("attention_factor", otherwise);
}

std::vector<double> read_factors(const ConfigReader& reader, std::string_view key, std::int64_t count) {
  const Json* list = reader.find(key);
  if (list == nullptr || !list->is_array() || static_cast<std::int64_t>(list->size()) != count) {
    reader.refuse(key, format("expected a list of {} numbers", count));
  }
  std::vector<double> factors;
  for (const Json& value : list->as_array()) {
    if (!value.is_number() || !(value.as_double() > 0) || !std::isfinite(value.as_double()))
      reader.refuse(key, format("expected numbers above 0, found {}", value.dump()));
    factors.push_back(value.as_double());
  }
  return factors;
}

void read_longrope(const ConfigReader& reader, RotarySpec& rotary) {
  rotary.short_factors = read_factors(reader, "short_factor", rotary.rotary_dim / 2);
  rotary.long_factors = read_factors(reader, "long_factor", rotary.rotary_dim / 2);
  const double original = static_cast<double>(rotary.original_max_positions);
  const double otherwise =
      rotary.factor <= 1 ? 1 : std::sqrt(1 + std::log(rotary.factor) / std::log(original));
  rotary.attention_factor = reader.positive("attention_factor", otherwise);
}

void read_llama3(const ConfigReader& reader, RotarySpec& rotary) {
  rotary.low_freq_factor = reader.positive("low_freq_factor", 1);
  rotary.high_freq_factor = reader.positive("high_freq_factor", 4);
  if (rotary.high_freq_factor <= rotary.low_freq_factor) {
    reader.refuse("high_freq_factor", "must be larger than low_freq_factor");
  }
}

// yarn and longrope have the ratio of the two lengths as their factor when none is given.
double read_factor(const ConfigReader& reader, std::string_view type, const RotarySpec& rotary,
                   std::int64_t max_positions) {
  if (reader.find("factor") != nullptr) return reader.positive("factor", 1);
  if (rotary.scaling == Scaling::yarn || rotary.scaling == Scaling::longrope)
    return static_cast<double>(max_positions) / static_cast<double>(rotary.original_max_positions);
  reader.refuse("factor", format("is missing; rope_type {} needs it", type));
}

}  // namespace

RotarySpec read_rotary_object(const ConfigReader& config, const Json& object, const std::string& key,
                              const RotaryDefaults& defaults) {
  if (!object.is_object()) config.refuse(key, format("expected an object, found {}", object.dump()));
  const ConfigReader reader(object, format("{}: {}", config.file(), key));
  RotarySpec rotary;
  rotary.rotary_dim = defaults.head_dim;
  rotary.theta = reader.positive("rope_theta", defaults.theta);
  if (reader.number("partial_rotary_factor", 1) != 1)
    reader.refuse("partial_rotary_factor", "this family turns all channels of a head");
  const std::string type = reader.text("rope_type", reader.text("type", "default"));
  rotary.scaling = find_type(reader, type);
  if (rotary.scaling == Scaling::none) return rotary;
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  rotary.original_max_positions =
      reader.integer(kOriginal, config.integer(kOriginal, defaults.max_positions, 2), 2);
  rotary.factor = read_factor(reader, type, rotary, defaults.max_positions);
  switch (rotary.scaling) {
    case Scaling::llama3:
      read_llama3(reader, rotary);
      break;
    case Scaling::yarn:
      read_yarn(reader, rotary);
      break;
    case Scaling::longrope:
      // The two lengths decide where both are known.
      if (reader.find(kOriginal) != nullptr || config.find(kOriginal) != nullptr)
        rotary.factor =
            static_cast<double>(defaults.max_positions) / static_cast<double>(rotary.original_max_positions);
      read_longrope(reader, rotary);
      break;
    case Scaling::dynamic:
      rotary.original_max_positions = defaults.max_positions;
      if (rotary.rotary_dim <= 2) reader.refuse("rope_type", "dynamic needs heads of more than 2 channels");
      break;
    default:
      break;
  }
  return rotary;
}

const Json* nested_rotary(const ConfigReader& config, std::string_view layer_type) {
  const Json* all = config.find("rope_parameters");
  if (all == nullptr || !all->is_object()) return nullptr;
  const Json* one = all->find(layer_type);
  return one == nullptr || one->is_null() ? nullptr : one;
}

RotarySpec read_rotary(const ConfigReader& config, const RotaryDefaults& defaults) {
  RotaryDefaults own = defaults;
  own.theta = config.positive("rope_theta", defaults.theta);
  if (config.number("partial_rotary_factor", 1) != 1)
    config.refuse("partial_rotary_factor", "this family turns all channels of a head");
  for (const std::string key : {"rope_parameters", "rope_scaling"}) {
    const Json* object = config.find(key);
    if (object != nullptr) return read_rotary_object(config, *object, key, own);
  }
  return read_rotary_object(config, Json::object(), "rope_parameters", own);
}

}  // namespace lode
