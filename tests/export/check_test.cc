// The comparison that decides about an export, and Modelfiles.
#include "export/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "export/modelfile.h"
#include "text/builtin_templates.h"
#include "text/small_tokenizer.h"

namespace lode {
namespace {

Probe probe(std::vector<float> logits, std::vector<std::int32_t> greedy) {
  return {"p", {1, 2}, std::move(greedy), std::move(logits)};
}

TEST(CompareProbes, EqualOnesHaveNoError) {
  const std::vector<Probe> a = {probe({1, -4, 2}, {5, 6}), probe({0, 0, 3}, {})};
  const ProbeComparison same = compare_probes(a, a);
  EXPECT_EQ(same.max_logit_error, 0);
  EXPECT_EQ(same.max_divergence, 0);
  EXPECT_EQ(same.greedy_tokens, 2);
  EXPECT_EQ(same.greedy_equal, 2);
  EXPECT_TRUE(same.same_tokens);
}

TEST(CompareProbes, TheWorstProbeCounts) {
  const std::vector<Probe> a = {probe({1, -4, 2}, {5, 6, 7}), probe({0, 2}, {1, 1})};
  const std::vector<Probe> b = {probe({1, -3, 2}, {5, 9, 7}), probe({0, 2}, {1})};
  const ProbeComparison found = compare_probes(a, b);
  EXPECT_DOUBLE_EQ(found.max_logit_error, 0.25);
  EXPECT_EQ(found.greedy_tokens, 5);
  EXPECT_EQ(found.greedy_equal, 2) << "up to the first difference of each";
  // sum of p log(p / q) over e^1, e^-4, e^2 and e^1, e^-3, e^2
  const double p = std::exp(1) + std::exp(-4) + std::exp(2), q = std::exp(1) + std::exp(-3) + std::exp(2);
  EXPECT_NEAR(found.max_divergence, std::log(q / p) - std::exp(-4) / p, 1e-12);
}

TEST(CompareProbes, NotANumberIsNoSmallError) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int bad : {0, 1}) {  // whatever follows it
    std::vector<Probe> good(2, probe({1, 2}, {})), other = good;
    other[static_cast<std::size_t>(bad)].logits[0] = nan;
    const ProbeComparison found = compare_probes(good, other);
    EXPECT_FALSE(found.max_logit_error <= 1);
    EXPECT_FALSE(found.max_divergence <= 1);
  }
}

TEST(CompareProbes, OtherTokensOrFewerPromptsAreNoticed) {
  Probe other = probe({1, 2}, {});
  other.tokens = {1, 3};
  EXPECT_FALSE(compare_probes({probe({1, 2}, {})}, {other}).same_tokens);
  EXPECT_FALSE(compare_probes({probe({1, 2}, {})}, {}).same_tokens);
  EXPECT_FALSE(compare_probes({probe({1, 2}, {})}, {probe({1, 2, 3}, {})}).same_tokens);
}

std::string modelfile_of(const std::string& chat_template, const std::string& eos = "<|end|>") {
  Json config = Json::object({{"eos_token", eos}, {"bos_token", "<x>"}});
  if (!chat_template.empty()) config["chat_template"] = chat_template;
  return ollama_modelfile("m.gguf", load_document(small_document(), config));
}

std::string builtin(std::string_view name) {
  return std::string(find_builtin_template(name).source);
}

constexpr std::string_view kFrom = "FROM ./m.gguf\n", kStop = "PARAMETER stop \"<|end|>\"\n";

TEST(Modelfile, KnownFormatsGetTheirTemplate) {
  EXPECT_EQ(
      modelfile_of(builtin("chatml")),
      std::string(kFrom) +
          "TEMPLATE \"\"\"{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}"
          "<|im_start|>assistant\n\"\"\"\n" +
          std::string(kStop));
  EXPECT_EQ(modelfile_of(builtin("llama3")),
            std::string(kFrom) +
                "TEMPLATE \"\"\"{{- range .Messages }}<|start_header_id|>{{ .Role }}<|end_header_id|>\n\n"
                "{{ .Content }}<|eot_id|>{{ end }}<|start_header_id|>assistant<|end_header_id|>\n\n\"\"\"\n" +
                std::string(kStop));
  const std::string gemma = modelfile_of(builtin("gemma"));
  EXPECT_NE(
      gemma.find("{{ if eq .Role \"assistant\" }}model{{ else }}user{{ end }}\n{{ .Content }}<end_of_turn>"),
      std::string::npos)
      << gemma;
}

TEST(Modelfile, ASystemMessageOfTheTemplateIsKept) {
  const std::string own =
      "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}" +
      builtin("chatml");
  const std::string text = modelfile_of(own);
  EXPECT_NE(text.find("SYSTEM \"\"\"Be kind.\"\"\"\n"), std::string::npos) << text;
  EXPECT_NE(text.find("TEMPLATE"), std::string::npos) << text;
  // Also when the begin token is what begins a message.
  Json config =
      Json::object({{"eos_token", "<|end|>"}, {"bos_token", "<|im_start|>"}, {"chat_template", own}});
  const Tokenizer tokenizer = load_document(small_document()).add_special_tokens({"<|im_start|>"});
  const TempFolder folder;
  tokenizer.save(real_files(), folder.path());
  write_file_atomically(real_files(), folder / "tokenizer_config.json", config.dump());
  real_files().remove(folder / "special_tokens_map.json");
  EXPECT_EQ(ollama_modelfile("m.gguf", Tokenizer::load(real_files(), folder.path())), text);
}

TEST(Modelfile, OtherTemplatesAreLeftToTheFile) {
  const std::string bare = std::string(kFrom) + std::string(kStop);
  EXPECT_EQ(modelfile_of(""), bare);
  EXPECT_EQ(modelfile_of(builtin("mistral")), bare);
  // Almost ChatML: a space, an order that puts the system message last, a template that rejects the question.
  std::string spaced = builtin("chatml");
  spaced.replace(spaced.find("{{ message.content }}"), 21, " {{ message.content }}");
  EXPECT_EQ(modelfile_of(spaced), bare);
  EXPECT_EQ(modelfile_of("{{ raise_exception('no') }}"), bare);
  EXPECT_EQ(modelfile_of("{% set messages = messages | rejectattr('role', 'equalto', 'system') %}" +
                         builtin("chatml")),
            bare)
      << "without its system messages";
}

}  // namespace
}  // namespace lode
