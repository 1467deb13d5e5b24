#include <gtest/gtest.h>

#include "models/model_test.h"

namespace lode::test {
namespace {

std::string problem_of(const std::string& text) {
  EXPECT_EQ(kind_of([&] { parse_model_config(text); }), ErrorKind::data);
  return error_of([&] { parse_model_config(text); });
}

// The message names the file and holds every part.
void expect_problem(const std::string& text, const std::vector<std::string>& parts) {
  const std::string message = problem_of(text);
  EXPECT_NE(message.find("config.json"), std::string::npos) << message;
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Config, LlamaDefaults) {
  const DecoderSpec spec = parse_model_config(R"({"model_type": "llama", "head_dim": null})").spec;
  EXPECT_EQ(spec.vocab_size, 32000);
  EXPECT_EQ(spec.hidden, 4096);
  EXPECT_EQ(spec.intermediate, 11008);
  EXPECT_EQ(spec.layers, 32);
  EXPECT_EQ(spec.heads, 32);
  EXPECT_EQ(spec.kv_heads, 32);
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.max_positions, 2048);
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-6f);
  EXPECT_EQ(spec.rotary.theta, 10000);
  EXPECT_EQ(spec.rotary.rotary_dim, 128);
  EXPECT_FALSE(spec.qkv_bias || spec.output_bias || spec.mlp_bias || spec.tied_head);
  EXPECT_FALSE(spec.scale_residual_init);
}

TEST(Config, Gpt2Defaults) {
  const DecoderSpec spec = parse_model_config(R"({"model_type": "gpt2"})").spec;
  EXPECT_EQ(spec.vocab_size, 50257);
  EXPECT_EQ(spec.intermediate, 3072);
  EXPECT_EQ(spec.max_positions, 1024);
  EXPECT_TRUE(spec.qkv_bias && spec.output_bias && spec.mlp_bias && spec.norm_bias && spec.tied_head);
  EXPECT_EQ(spec.attention_scale, 0.125);
  EXPECT_EQ(spec.activation, Activation::gelu_tanh);
  EXPECT_FLOAT_EQ(spec.embedding_dropout, 0.1f);
  const std::string plain =
      R"({"model_type": "gpt2", "scale_attn_weights": false, "activation_function": "gelu"})";
  EXPECT_EQ(parse_model_config(plain).spec.attention_scale, 1);
  EXPECT_EQ(parse_model_config(plain).spec.activation, Activation::gelu_erf);
}

TEST(Config, ParameterCounts) {
  EXPECT_EQ(TinyModel(R"({"model_type": "gpt2"})").decoder.parameters().numel(), 124'439'808);
  const std::string small_llama = R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
      "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
      "tie_word_embeddings": true})";
  EXPECT_EQ(TinyModel(small_llama).decoder.parameters().numel(), 134'515'008);
  // 64 x 32 twice; per layer 4 matrices of attention, 3 of the MLP, their biases, 2 norms; the last norm.
  const std::string biased = llama_config(R"("attention_bias": true, "mlp_bias": true)");
  EXPECT_EQ(TinyModel(biased).decoder.parameters().numel(),
            2 * 64 * 32 +
                4 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 40 + 2 * 32 + 2 * 16 + 2 * 40 + 32 + 2 * 32) + 32);
  EXPECT_EQ(short_parameter_count(124'439'808), "124.4M");
  EXPECT_EQ(short_parameter_count(6'738'415'616), "6.74B");
  EXPECT_EQ(short_parameter_count(9'800), "10k");
}

TEST(Config, KeepsEveryKey) {
  const ModelConfig config = parse_model_config(llama_config(R"("brand": {"new": [1, "x"]})"));
  EXPECT_EQ(config.json.at("brand").dump(), R"({"new": [1, "x"]})");
  EXPECT_EQ(config.spec.model_type, "llama");
}

TEST(Config, UnknownModelTypeListsTheKnownOnes) {
  expect_problem(R"({"model_type": "mamba"})",
                 {"\"mamba\"", "known: gemma3_text, gpt2, llama, mistral, qwen2, qwen3, smollm3"});
  expect_problem(R"({"hidden_size": 8})", {"\"model_type\" is missing"});
  expect_problem(R"({"model_type": 3})", {"model_type", "expected a string, found 3"});
  for (const std::string_view name : known_families()) EXPECT_EQ(find_family(name, "f").model_type, name);
}

TEST(Config, ScalingsThatAreNotSupportedAreNamed) {
  const std::string known = "default, linear, dynamic, llama3, longrope, yarn";
  for (const std::string type : {"mrope", "proportional"}) {
    expect_problem(llama_config(format(R"("rope_scaling": {{"rope_type": "{}", "factor": 4}})", type)),
                   {"rope_scaling", "rope_type", "\"" + type + "\"", known});
    expect_problem(llama_config(format(R"("rope_parameters": {{"rope_type": "{}", "factor": 4}})", type)),
                   {"rope_parameters", "\"" + type + "\""});
    expect_problem(llama_config(format(R"("rope_scaling": {{"type": "{}", "factor": 4}})", type)),
                   {"\"" + type + "\""});
  }
}

TEST(Config, ScalingsNeedTheirKeys) {
  const auto scaling = [](const std::string& keys, const std::vector<std::string>& parts) {
    expect_problem(llama_config("\"rope_scaling\": {" + keys + "}"), parts);
  };
  scaling(R"("rope_type": "dynamic")", {"factor", "is missing"});
  scaling(R"("rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 1)",
          {"original_max_position_embeddings", "found 1"});
  scaling(R"("rope_type": "yarn", "factor": 4, "beta_fast": 0)", {"beta_fast", "found 0"});
  scaling(R"("rope_type": "yarn", "factor": 4, "rope_theta": 1)", {"rope_theta", "above 1"});
  scaling(R"("rope_type": "longrope", "short_factor": [1, 1, 1, 1])", {"long_factor", "list of 4"});
  scaling(R"("rope_type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1, 1, 1])",
          {"short_factor", "list of 4"});
  scaling(R"("rope_type": "longrope", "short_factor": [1, 1, 0, 1], "long_factor": [1, 1, 1, 1])",
          {"short_factor", "found 0"});
  scaling(R"("partial_rotary_factor": 0.5)", {"partial_rotary_factor"});
  expect_problem(llama_config(R"("partial_rotary_factor": 0.5)"), {"partial_rotary_factor"});
  expect_problem(llama_config(R"("head_dim": 2, "rope_scaling": {"rope_type": "dynamic", "factor": 2})"),
                 {"dynamic", "2 channels"});
}

TEST(Config, LongropeFactorComesFromTheTwoLengths) {
  const DecoderSpec spec =
      parse_model_config(tiny_config("llama", R"("original_max_position_embeddings": 4096,
      "rope_scaling": {"rope_type": "longrope", "factor": 3, "short_factor": [1, 1, 1, 1],
                       "long_factor": [2, 2, 2, 2]})",
                                     131072))
          .spec;
  EXPECT_EQ(spec.rotary.factor, 32);
  EXPECT_EQ(spec.rotary.original_max_positions, 4096);
  EXPECT_NEAR(spec.rotary.attention_factor, 1.190238, 1e-6);
}

DecoderSpec defaults_of(const std::string& model_type) {
  return parse_model_config(format(R"({{"model_type": "{}"}})", model_type)).spec;
}

TEST(Config, MistralDefaults) {
  const DecoderSpec spec = defaults_of("mistral");
  EXPECT_EQ(spec.intermediate, 14336);
  EXPECT_EQ(spec.kv_heads, 8);
  EXPECT_EQ(spec.max_positions, 131072);
  EXPECT_EQ(spec.layer(0).window, 4096);
  EXPECT_EQ(spec.layer(31).window, 4096);
  EXPECT_EQ(parse_model_config(R"({"model_type": "mistral", "sliding_window": null})").spec.layer(0).window,
            0);
}

TEST(Config, QwenDefaults) {
  for (const std::string type : {"qwen2", "qwen3"}) {
    const DecoderSpec spec = defaults_of(type);
    EXPECT_EQ(spec.vocab_size, 151936);
    EXPECT_EQ(spec.kv_heads, 32);
    EXPECT_EQ(spec.head_dim, 128);
    EXPECT_EQ(spec.layer(31).window, 0);
    EXPECT_EQ(spec.qkv_bias, type == "qwen2");
    EXPECT_EQ(spec.head_norms, type == "qwen3");
    EXPECT_FALSE(spec.output_bias || spec.tied_head);
    const DecoderSpec sliding =
        parse_model_config(format(R"({{"model_type": "{}", "use_sliding_window": true}})", type)).spec;
    EXPECT_EQ(sliding.layer(27).window, 0);
    EXPECT_EQ(sliding.layer(28).window, 4096);
  }
  // head_dim is a key of its own: not hidden_size / num_attention_heads.
  EXPECT_EQ(parse_model_config(R"({"model_type": "qwen3", "hidden_size": 1024})").spec.head_dim, 128);
}

TEST(Config, SmolLm3Defaults) {
  const DecoderSpec spec = defaults_of("smollm3");
  EXPECT_EQ(spec.layers, 36);
  EXPECT_EQ(spec.kv_heads, 4);
  EXPECT_EQ(spec.rotary.theta, 2e6);
  EXPECT_TRUE(spec.tied_head);
  EXPECT_EQ(spec.layer(2).rotary, LayerRotary::global);
  EXPECT_EQ(spec.layer(3).rotary, LayerRotary::none);
  EXPECT_EQ(spec.layer(3).window, 0);
}

TEST(Config, Gemma3Defaults) {
  const DecoderSpec spec = defaults_of("gemma3_text");
  EXPECT_EQ(spec.vocab_size, 262208);
  EXPECT_EQ(spec.head_dim, 256);
  EXPECT_EQ(spec.attention_scale, 0.0625);
  EXPECT_EQ(spec.embedding_scale, 48);
  EXPECT_EQ(spec.activation, Activation::gelu_tanh);
  EXPECT_EQ(spec.rotary.theta, 1e6);
  EXPECT_EQ(spec.local_rotary.theta, 1e4);
  EXPECT_EQ(spec.norm_offset, 1);
  EXPECT_TRUE(spec.tied_head && spec.head_norms && spec.post_norms);
  EXPECT_EQ(spec.layer(4).window, 4096);
  EXPECT_EQ(spec.layer(4).rotary, LayerRotary::local);
  EXPECT_EQ(spec.layer(5).window, 0);
  EXPECT_EQ(spec.layer(5).rotary, LayerRotary::global);
}

TEST(Config, LayersThatAFamilyCannotHave) {
  expect_problem(tiny_config("gemma3_text", R"("final_logit_softcapping": 30.0)"),
                 {"final_logit_softcapping"});
  expect_problem(tiny_config("gemma3_text", R"("attn_logit_softcapping": 50.0)"), {"attn_logit_softcapping"});
  expect_problem(tiny_config("gemma3_text", R"("use_bidirectional_attention": true)"),
                 {"use_bidirectional_attention"});
  expect_problem(tiny_config("qwen3", R"("layer_types": ["full_attention"])"), {"layer_types", "list of 4"});
  expect_problem(tiny_config("qwen3", R"("layer_types": ["full_attention", "full_attention", "full_attention",
                                          "chunked_attention"])"),
                 {"layer_types", "\"chunked_attention\"", "full_attention, sliding_attention"});
  expect_problem(tiny_config("smollm3", R"("no_rope_layers": [1, 0])"), {"no_rope_layers", "list of 4"});
  expect_problem(tiny_config("smollm3", R"("no_rope_layers": [1, 0, 2, 1])"), {"no_rope_layers", "found 2"});
  expect_problem(tiny_config("mistral", R"("sliding_window": -1)"), {"sliding_window", "found -1"});
}

TEST(Config, WrongTypesAndValuesNameFileAndKey) {
  const auto llama = [](const std::string& key, const std::string& value,
                        const std::vector<std::string>& parts) {
    std::vector<std::string> all = parts;
    all.push_back(key);
    expect_problem(R"({"model_type": "llama", ")" + key + "\": " + value + "}", all);
  };
  llama("vocab_size", "\"many\"", {"expected an integer from 1", "\"many\""});
  llama("hidden_size", "0", {"found 0"});
  llama("num_hidden_layers", "-1", {"found -1"});
  llama("intermediate_size", "1.5", {"found 1.5"});
  llama("vocab_size", "99999999999", {"found 99999999999"});
  llama("head_dim", "7", {"odd"});
  llama("num_key_value_heads", "5", {"does not divide"});
  llama("num_attention_heads", "3", {"does not divide"});
  llama("rms_norm_eps", "\"small\"", {"expected a number"});
  llama("rms_norm_eps", "-1e-6", {"-1e-06"});
  llama("rope_theta", "0", {"found 0"});
  llama("attention_bias", "1", {"expected true or false, found 1"});
  llama("hidden_act", "\"relu\"", {"relu"});
  llama("initializer_range", "-0.1", {"found -0.1"});
  llama("rope_scaling", "[]", {"expected an object"});
  llama("rope_scaling", R"({"rope_type": "linear"})", {"factor"});
  llama("rope_scaling", R"({"rope_type": "linear", "factor": 0})", {"factor"});
  llama("rope_scaling",
        R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4})",
        {"high_freq_factor"});
  const auto gpt2 = [](const std::string& key, const std::string& value,
                       const std::vector<std::string>& parts) {
    std::vector<std::string> all = parts;
    all.push_back(key);
    expect_problem(R"({"model_type": "gpt2", ")" + key + "\": " + value + "}", all);
  };
  gpt2("n_head", "7", {"does not divide"});
  gpt2("activation_function", "\"silu\"", {"gelu"});
  gpt2("embd_pdrop", "1.0", {"found 1"});
  gpt2("resid_pdrop", "-0.5", {"found -0.5"});
  gpt2("n_inner", "[]", {"expected an integer"});
}

// Sizes whose product overflows 64 bits.
TEST(Config, HugeModelsAreRefused) {
  for (const char* const keys : {R"("vocab_size": 2147483648, "hidden_size": 2147483648)",
                                 R"("num_hidden_layers": 2147483648, "hidden_size": 4096)",
                                 R"("num_attention_heads": 2147483648, "head_dim": 2147483648)",
                                 R"("intermediate_size": 2147483648, "hidden_size": 2147483648)"}) {
    expect_problem(std::string(R"({"model_type": "llama", )") + keys + "}",
                   {"a model of about", "parameters"});
  }
  // Nothing of the size of the number of layers is made before it is refused.
  for (const std::string_view family : known_families()) {
    expect_problem(format(R"({{"model_type": "{}", "num_hidden_layers": 2147483648, "n_layer": 2147483648,
                              "hidden_size": 8, "n_embd": 8, "head_dim": 2, "num_attention_heads": 1, "n_head": 1,
                              "num_key_value_heads": 1, "intermediate_size": 1, "vocab_size": 1}})",
                          family),
                   {"2147483648 layers", "at most 10000"});
  }
}

TEST(Config, FilesThatAreNotThere) {
  const TempFolder folder;
  const auto message = [](const std::string& path) {
    return error_of([&] { read_model_config(real_files(), path); });
  };
  EXPECT_NE(message(folder / "absent").find(folder / "absent"), std::string::npos);
  EXPECT_NE(message(folder.path()).find("no config.json"), std::string::npos);
  write_file_atomically(real_files(), folder / "config.json", "{\"model_type\": ");
  EXPECT_NE(message(folder.path()).find(folder / "config.json"), std::string::npos);
  write_file_atomically(real_files(), folder / "config.json", "[]");
  EXPECT_NE(message(folder.path()).find("model_type"), std::string::npos);
  write_file_atomically(real_files(), folder / "config.json", llama_config());
  EXPECT_EQ(read_model_config(real_files(), folder / "config.json").spec.hidden, 32);
}

}  // namespace
}  // namespace lode::test
