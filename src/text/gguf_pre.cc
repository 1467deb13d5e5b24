#include "text/gguf_pre.h"

#include "text/pre_tokenizer.h"

namespace lode::text {
namespace {

constexpr std::string_view kContraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
constexpr std::string_view kSpaces = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";

Json split(const std::string& expression) {
  return Json::object({{"type", "Split"},
                       {"pattern", Json::object({{"Regex", expression}})},
                       {"behavior", "Isolated"},
                       {"invert", false}});
}

Json byte_level(bool use_regex) {
  return Json::object(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}});
}

Json sequence(Json::Array steps) {
  return Json::object({{"type", "Sequence"}, {"pretokenizers", std::move(steps)}});
}

Json llama3_like(std::string_view number) {
  std::string expression(kContraction);
  expression.append(R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)").append(number);
  expression.append(R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|)").append(kSpaces);
  return sequence({split(expression), byte_level(false)});
}

Json gpt4o_like(std::string_view number, const std::string& contraction) {
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])", lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string before = R"([^\r\n\p{L}\p{N}]?)";
  std::string expression = before + upper + "*" + lower + "+" + contraction + "|";
  expression += before + upper + "+" + lower + "*" + contraction + "|";
  expression.append(number).append(R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|)").append(kSpaces);
  return sequence({split(expression), byte_level(false)});
}

Json llama_bpe() {
  return llama3_like(R"(\p{N}{1,3})");
}

Json qwen2() {
  return llama3_like(R"(\p{N})");
}

Json gpt2() {
  return byte_level(true);
}

Json single_digits() {
  return sequence({Json::object({{"type", "Digits"}, {"individual_digits", true}}), byte_level(true)});
}

Json falcon() {
  return sequence({split(R"([\p{P}\$\+<=>\^~\|`]+)"), split(std::string(kGpt2Pattern)),
                   split(std::string(kThreeDigits)), byte_level(false)});
}

Json unnamed() {
  return sequence({split(R"([\p{P}\$\+<=>\^~\|]+)"), split(std::string(kGpt2Pattern)), split(R"(\p{N}+)"),
                   split(std::string(kThreeDigits)), byte_level(false)});
}

Json deepseek_v3() {
  const std::string words =
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)";
  return sequence({split(R"(\p{N}{1,3})"), split("[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"),
                   split(words + std::string(kSpaces)), byte_level(false)});
}

Json tekken() {
  return gpt4o_like(R"(\p{N})", "");
}

Json gpt4o() {
  return gpt4o_like(R"(\p{N}{1,3})", std::string(kContraction) + "?");
}

// The first of several names for one pre-tokenizer is the one that is written.
const GgufPre kPres[] = {
    {"llama-bpe", true, true, false, llama_bpe},
    {"llama3", true, true, false, llama_bpe},
    {"llama-v3", true, true, false, llama_bpe},
    {"chatglm-bpe", false, false, false, llama_bpe},
    {"glm4", false, false, false, llama_bpe},
    {"smaug-bpe", false, false, false, llama_bpe},
    {"dbrx", false, false, false, llama_bpe},
    {"qwen2", false, false, true, qwen2},
    {"stablelm2", false, false, false, qwen2},
    {"deepseek-r1-qwen", false, false, false, qwen2},
    {"megrez", false, false, false, qwen2},
    {"gpt-2", false, false, false, gpt2},
    {"phi-2", false, false, false, gpt2},
    {"olmo", false, false, false, gpt2},
    {"mpt", false, false, false, gpt2},
    {"jais", false, false, false, gpt2},
    {"smollm", false, false, false, single_digits},
    {"starcoder", false, false, false, single_digits},
    {"refact", false, false, false, single_digits},
    {"command-r", false, false, false, single_digits},
    {"codeshell", false, false, false, single_digits},
    {"exaone", false, false, false, single_digits},
    {"falcon", false, false, false, falcon},
    {"deepseek-v3", false, false, false, deepseek_v3},
    {"hunyuan-dense", false, false, false, deepseek_v3},
    {"tekken", true, true, false, tekken},
    {"gpt-4o", false, false, false, gpt4o},
    {"llama4", false, false, false, gpt4o},
    {"default", false, false, false, unnamed},
};

}  // namespace

std::span<const GgufPre> gguf_pres() {
  return kPres;
}

const GgufPre* find_gguf_pre(std::string_view name) {
  if (name.empty()) name = "default";
  for (const GgufPre& pre : kPres) {
    if (pre.name == name) return &pre;
  }
  return nullptr;
}

}  // namespace lode::text
