// Adapters against numbers of peft (tools/model_fixtures/make_peft_fixture.py), their files, and merging.
#include "models/peft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "io/weights.h"
#include "models/model_test.h"
#include "models/vocabulary.h"

namespace lode::test {
namespace {

struct Adapted {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  ModelConfig config;
  Decoder decoder;

  Adapted(const std::string& text, WeightPolicy policy)
      : config(parse_model_config(text)), decoder(context, config.spec, config.names, std::move(policy)) {
    fill_by_rule(decoder.parameters());
    decoder.parameters().allocate_gradients();
  }
};

WeightPolicy with_adapter(AdapterSpec spec) {
  WeightPolicy policy(false);
  policy.adapter = std::move(spec);
  return policy;
}

std::vector<std::string> strings(const Json& list) {
  std::vector<std::string> out;
  for (const Json& entry : list.as_array()) out.push_back(entry.as_string());
  return out;
}

AdapterSpec spec_of(const Json& json) {
  AdapterSpec spec;
  spec.rank = json.at("r").as_int();
  spec.alpha = json.at("lora_alpha").as_double();
  spec.rslora = json.find("use_rslora") != nullptr;
  spec.targets = strings(json.at("target_modules"));
  spec.additional_targets = strings(json.at("modules_to_save"));
  spec.tied_copies = json.find("ensure_weight_tying") != nullptr;
  if (json.find("rank_pattern") != nullptr) {
    spec.ranks["k_proj"] = json.at("rank_pattern").at("k_proj").as_int();
    spec.alphas["k_proj"] = json.at("alpha_pattern").at("k_proj").as_double();
  }
  return spec;
}

Batch batch_of(const Json& fixture) {
  std::vector<std::vector<std::int32_t>> samples;
  for (const Json& tokens : fixture.at("tokens").as_array()) {
    samples.emplace_back();
    for (const Json& token : tokens.as_array())
      samples.back().push_back(static_cast<std::int32_t>(token.as_int()));
  }
  return packed_batch(samples);
}

double mean_loss(Context& context, Decoder& decoder, const Batch& batch) {
  return decoder.loss(context, batch, 0).sum / static_cast<double>(batch.num_targets());
}

std::string one_gradient_problem(const Parameter& p, const Json& expected) {
  const double norm = expected.as_array()[0].as_double();
  double squares = 0;
  for (std::int64_t r = 0; r < p.rows; ++r) {
    for (std::int64_t c = 0; c < p.cols; ++c) {
      const double got = p.gradient().row<float>(r)[c];
      squares += got * got;
      const Json* want = expected.as_array()[1].find(format("{}", stored_index(p, r, c)));
      if (want != nullptr &&
          std::abs(got - want->as_double()) > 1e-4 * std::abs(want->as_double()) + 1e-5 * norm)
        return format("{}: at {}, {}: {} instead of {}", p.name, r, c, got, want->as_double());
    }
  }
  if (std::abs(std::sqrt(squares) - norm) > 1e-4 * norm)
    return format("{}: norm {} instead of {}", p.name, std::sqrt(squares), norm);
  return "";
}

Json read_fixture(const std::string& name) {
  const std::string path = format("{}/models/fixtures/peft_{}.json", LODE_TEST_DIR, name);
  return parse_json(real_files().read(path), path);
}

class Peft : public testing::TestWithParam<const char*> {};

TEST_P(Peft, LossAndGradientsEqualThoseOfPeft) {
  const Json fixture = read_fixture(GetParam());
  Adapted model(fixture.at("config").dump(), with_adapter(spec_of(fixture.at("adapter"))));
  const Batch batch = batch_of(fixture);
  Tape tape;
  model.context.tape = &tape;
  const auto targets = static_cast<double>(batch.num_targets());
  const TokenLosses losses = model.decoder.loss(model.context, batch, static_cast<float>(1 / targets));
  tape.backward(model.context);
  model.context.tape = nullptr;
  EXPECT_NEAR(losses.sum / targets, fixture.at("loss").as_double(), 1e-5);
  const auto& tensors = fixture.at("tensors").as_object();
  std::size_t trainable = 0;
  for (const Parameter& p : model.decoder.parameters().all()) trainable += p.trainable();
  EXPECT_EQ(trainable, tensors.size());
  for (const auto& [name, expected] : tensors) {
    const Parameter* p = model.decoder.parameters().find(name);
    ASSERT_NE(p, nullptr) << name;
    ASSERT_TRUE(p->trainable()) << name;
    EXPECT_EQ(one_gradient_problem(*p, expected), "");
  }
  const WithoutAdapters off(model.context);
  EXPECT_NEAR(mean_loss(model.context, model.decoder, batch), fixture.at("loss_without").as_double(), 1e-5);
}

TEST_P(Peft, TensorNamesAreThoseOfPeft) {
  const Json fixture = read_fixture(GetParam());
  const Adapted model(fixture.at("config").dump(), with_adapter(spec_of(fixture.at("adapter"))));
  std::vector<std::string> names;
  for (const PeftTensor& tensor : peft_tensors(model.decoder.parameters())) names.push_back(tensor.spec.name);
  std::ranges::sort(names);
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : " ") + name;
  EXPECT_EQ(format("{:08x}", fnv1a(joined)), fixture.at("names").as_string()) << joined;
}

TEST_P(Peft, FilesComeBack) {
  const Json fixture = read_fixture(GetParam());
  const Batch batch = batch_of(fixture);
  const TempFolder folder;
  double saved = 0;
  {
    Adapted model(fixture.at("config").dump(), with_adapter(spec_of(fixture.at("adapter"))));
    saved = mean_loss(model.context, model.decoder, batch);
    save_peft(real_files(), folder.path(), model.decoder.parameters(), "some/base");
  }
  EXPECT_EQ(read_peft_base(real_files(), folder.path()), "some/base");
  Adapted model(fixture.at("config").dump(), with_adapter(read_peft_spec(real_files(), folder.path())));
  for (const Parameter& p : model.decoder.parameters().all()) {
    if (p.role == ParameterRole::base || !p.trainable()) continue;
    for (std::int64_t r = 0; r < p.rows; ++r) std::fill_n(p.values().row<float>(r), p.cols, 9.0f);
  }
  EXPECT_NE(mean_loss(model.context, model.decoder, batch), saved);
  load_peft(real_files(), folder.path(), model.context, model.decoder);
  EXPECT_EQ(mean_loss(model.context, model.decoder, batch), saved);
  // And says the same when it is written again.
  const TempFolder second;
  save_peft(real_files(), second.path(), model.decoder.parameters(), "some/base");
  EXPECT_EQ(real_files().read(second / "adapter_model.safetensors"),
            real_files().read(folder / "adapter_model.safetensors"));
}

// A plain model with the merged rows has the adapted model's loss.
TEST_P(Peft, MergedEqualsBaseAndAdapter) {
  const Json fixture = read_fixture(GetParam());
  const Batch batch = batch_of(fixture);
  Adapted adapted(fixture.at("config").dump(), with_adapter(spec_of(fixture.at("adapter"))));
  Json config = fixture.at("config");
  const bool untied = unties_head(adapted.decoder);
  EXPECT_EQ(untied, std::string(GetParam()) == "gpt2") << "a copy of a tied embedding stands beside the head";
  if (untied) config["tie_word_embeddings"] = false;
  Adapted plain(config.dump(), false);
  const ParameterList& from = adapted.decoder.parameters();
  for (const Parameter& p : plain.decoder.parameters().all()) {
    const bool as_head = untied && p.kind == ModuleKind::head;
    const std::size_t index = from.index_of(as_head ? "transformer.wte.weight" : p.name);
    // In two pieces, as an export writes.
    const std::int64_t half = p.rows / 2;
    if (half > 0) merged_rows(adapted.context, from, index, as_head, 0, p.values().slice_rows(0, half));
    merged_rows(adapted.context, from, index, as_head, half, p.values().slice_rows(half, p.rows - half));
    p.storage->changed(false);
  }
  const double want = mean_loss(adapted.context, adapted.decoder, batch);
  EXPECT_NEAR(mean_loss(plain.context, plain.decoder, batch), want, 1e-5);
  EXPECT_GT(std::abs(want - fixture.at("loss_without").as_double()), 1e-2) << "the adapter does something";
}

INSTANTIATE_TEST_SUITE_P(All, Peft, testing::Values("llama", "gpt2", "tied"),
                         [](const auto& test) { return std::string(test.param); });

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct PeftFolder : testing::Test {
  TempFolder folder;
  void write_config(const std::string& text) {
    write_file_atomically(real_files(), folder / "adapter_config.json", text);
  }
  void save(const std::string& config, AdapterSpec spec) {
    const Adapted model(config, with_adapter(std::move(spec)));
    save_peft(real_files(), folder.path(), model.decoder.parameters(), "b");
  }
};

TEST_F(PeftFolder, OtherKindsAreRefusedByName) {
  save(llama_config(), {});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"peft_type": "IA3"})", "peft_type \"IA3\""},
      {R"({})", "peft_type (none)"},
      {R"({"peft_type": "LORA", "use_dora": true, "lora_bias": true})", "use_dora, lora_bias"},
      {R"({"peft_type": "LORA", "bias": "all"})", "bias \"all\""},
      {R"({"peft_type": "LORA", "init_lora_weights": "pissa_niter_4"})", "pissa_niter_4"},
      {R"({"peft_type": "LORA", "trainable_token_indices": [3]})", "trainable_token_indices"},
      {R"({"peft_type": "LORA", "r": "8"})", "\"r\" is string"},
      {R"({"peft_type": "LORA", "alpha_pattern": {".*q_proj": 3}})", "regular expression"},
      {R"([])", "expected an object"},
  };
  for (const auto& [config, reason] : cases) {
    write_config(config);
    EXPECT_NE(error_of([&] { read_peft_spec(real_files(), folder.path()); }).find(reason), std::string::npos)
        << config << ": " << error_of([&] { read_peft_spec(real_files(), folder.path()); });
  }
  write_config(
      R"({"peft_type": "LORA", "use_dora": false, "layer_replication": null, "target_parameters": []})");
  EXPECT_EQ(error_of([&] { read_peft_spec(real_files(), folder.path()); }), "");
}

TEST_F(PeftFolder, PickledFilesAreRefused) {
  write_config(R"({"peft_type": "LORA"})");
  write_file_atomically(real_files(), folder / "adapter_model.bin", "x");
  EXPECT_NE(error_of([&] { read_peft_spec(real_files(), folder.path()); }).find("adapter_model.bin"),
            std::string::npos);
}

TEST_F(PeftFolder, EverythingThatDoesNotFitIsListed) {
  AdapterSpec wide;
  wide.targets = {"q_proj", "down_proj"};
  Json config = parse_json(llama_config(), "config");
  config["intermediate_size"] = 48;
  config["num_hidden_layers"] = 2;
  save(config.dump(), wide);
  config["intermediate_size"] = 40;
  config["num_hidden_layers"] = 1;
  Adapted model(config.dump(), with_adapter(read_peft_spec(real_files(), folder.path())));
  const std::string error =
      error_of([&] { load_peft(real_files(), folder.path(), model.context, model.decoder); });
  for (const char* part :
       {"layers.0.mlp.down_proj.lora_A.weight\": expected shape [8, 40], found [8, 48]",
        "layers.1.mlp.down_proj.lora_A.weight", "layers.1.self_attn.q_proj.lora_B.weight", "not expected"}) {
    EXPECT_NE(error.find(part), std::string::npos) << part << " in " << error;
  }
  EXPECT_EQ(error.find("layers.0.self_attn"), std::string::npos) << error;
}

TEST_F(PeftFolder, ConfigSaysWhatWasAdapted) {
  AdapterSpec spec;
  spec.targets = {"q_proj", "layers.1.mlp.up_proj"};
  spec.additional_targets = {"lm_head"};
  spec.ranks["layers.2.self_attn.q_proj"] = 3;
  spec.rslora = true;
  spec.dropout = 0.25f;
  save(llama_config(), spec);
  const Json config = parse_json(real_files().read(folder / "adapter_config.json"), "config");
  EXPECT_EQ(config.at("target_modules").dump(), R"(["model.layers.1.mlp.up_proj", "q_proj"])");
  EXPECT_EQ(config.at("modules_to_save").dump(), R"(["lm_head"])");
  EXPECT_EQ(config.at("rank_pattern").dump(), R"({"model.layers.2.self_attn.q_proj": 3})");
  EXPECT_EQ(config.at("lora_dropout").as_double(), 0.25);
  EXPECT_TRUE(config.at("use_rslora").as_bool());
  EXPECT_FALSE(config.at("fan_in_fan_out").as_bool());
  const AdapterSpec back = read_peft_spec(real_files(), folder.path());
  EXPECT_EQ(back.ranks, (std::map<std::string, std::int64_t>{{"model.layers.2.self_attn.q_proj", 3}}));
  EXPECT_EQ(back.targets.size(), 5u);
  EXPECT_EQ(back.additional_targets, std::vector<std::string>{"lm_head"});
}

// A base that was resized elsewhere: its new rows are in the adapter's file, as low-rank pairs are beside
// them.
TEST_F(PeftFolder, BaseLayersOfAResizedBaseComeAlong) {
  const TempFolder base;
  const std::string large = llama_config();
  Json fewer = parse_json(large, "config");
  fewer["vocab_size"] = 50;
  const std::string small = fewer.dump();
  {
    const Adapted stored(small, false);
    write_safetensors(
        real_files(), base / "model.safetensors", file_tensors(stored.decoder.parameters(), DType::f32),
        [&](std::size_t i) -> ConstView { return stored.decoder.parameters().all()[i].values(); });
  }
  AdapterSpec spec;
  spec.targets = {"embed_tokens", "lm_head", "q_proj"};
  spec.base_layers = true;
  Adapted resized(large, with_adapter(spec));
  const Batch batch = packed_batch({{1, 60, 7, 63, 2, 55}});
  const double want = mean_loss(resized.context, resized.decoder, batch);
  save_peft(real_files(), folder.path(), resized.decoder.parameters(), "b");

  ModelConfig config = parse_model_config(small);
  EXPECT_EQ(read_peft_rows(real_files(), folder.path(), config.names), 64);
  grow_vocabulary(config, 64);
  Decoder decoder(resized.context, config.spec, config.names,
                  with_adapter(read_peft_spec(real_files(), folder.path())));
  load_model_weights(real_files(), base.path(), config, decoder, resized.context);
  load_peft(real_files(), folder.path(), resized.context, decoder);
  EXPECT_EQ(mean_loss(resized.context, decoder, batch), want);
  const auto again = peft_tensors(decoder.parameters());
  EXPECT_EQ(std::ranges::count_if(
                again, [](const PeftTensor& t) { return t.spec.name.ends_with(".base_layer.weight"); }),
            2);
}

// Weights are quantised while loading, the same as the format's own rounding of the file's values.
TEST_F(PeftFolder, QuantisedWhileLoading) {
  for (const bool gpt2 : {false, true}) {
    const std::string config = gpt2 ? gpt2_config() : llama_config();
    Adapted exact(config, true);
    std::vector<TensorSpec> specs = file_tensors(exact.decoder.parameters(), DType::f32);
    write_safetensors(real_files(), folder / "model.safetensors", specs, [&](std::size_t i) -> ConstView {
      return exact.decoder.parameters().all()[i].values();
    });
    WeightPolicy policy(false);
    quantize_linears(policy, QuantFormat::int8);
    Adapted model(config, false);
    Memory memory;
    Decoder decoder(model.context, model.config.spec, model.config.names, policy);
    load_model_weights(real_files(), folder.path(), model.config, decoder, model.context);
    std::size_t quantized = 0;
    for (const Parameter& p : decoder.parameters().all()) {
      const Parameter& want = *exact.decoder.parameters().find(p.name);
      EXPECT_EQ(p.quantized(), p.kind == ModuleKind::linear && !p.vector) << p.name;
      quantized += p.quantized();
      Tensor values(memory, MemoryTag::data, DType::f32, p.rows, p.cols);
      p.read_rows(model.context, 0, values.view());
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.cols; ++c) {
          ASSERT_NEAR(values.view().row<float>(r)[c], want.values().row<float>(r)[c],
                      p.quantized() ? 0.25 / 254 * 1.01 : 0)
              << p.name << " " << r << " " << c;
        }
      }
    }
    EXPECT_EQ(quantized, gpt2 ? 16u : 28u);
  }
}

}  // namespace
}  // namespace lode::test
