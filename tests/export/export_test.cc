// Every form of export of a tiny model: what is in the files, and that they hold the model.
#include "export/export.h"

#include <gtest/gtest.h>

#include "export/export_fixture.h"
#include "io/gguf.h"
#include "models/gguf_names.h"
#include "text/gguf_tokenizer.h"

namespace lode::test {
namespace {

Json read_json(const std::string& path) {
  return parse_json(real_files().read(path), path);
}

// What every report of compared logits must say.
void expect_good_report(const Json& check, bool exact) {
  EXPECT_TRUE(check.at("same_tokens").as_bool());
  EXPECT_LE(check.at("max_logit_error").as_double(), check.at("allowed_logit_error").as_double());
  EXPECT_LE(check.at("max_divergence").as_double(), check.at("allowed_divergence").as_double());
  EXPECT_EQ(check.at("greedy_tokens").as_int(), 2 * 16);
  EXPECT_EQ(check.at("prompts").size(), 2u);
  if (exact) {
    EXPECT_EQ(check.at("greedy_equal"), check.at("greedy_tokens"));
    EXPECT_LE(check.at("allowed_logit_error").as_double(), 1e-3);
  }
}

TEST(Export, MergedSafetensorsAreShardedAndHoldTheModel) {
  const Source source(export_config(), export_adapter());
  const ExportReport report = source.run({.out = "merged", .shard_bytes = 40'000});
  EXPECT_EQ(report.files, std::vector<std::string>{source.out("merged")});
  EXPECT_EQ(source.exported(), std::vector<std::string>{"merged"});
  const std::string folder = source.out("merged");
  std::vector<std::string> shards;
  for (const std::string& name : real_files().list(folder)) {
    if (name.ends_with(".safetensors")) shards.push_back(name);
  }
  ASSERT_GE(shards.size(), 3u);
  EXPECT_EQ(shards.front(), format("model-00001-of-{:05}.safetensors", shards.size()));
  for (const std::string& name : shards)
    EXPECT_LE(real_files().size(join_path(folder, name)), 40'000u + 4'000u) << name;
  EXPECT_EQ(read_json(join_path(folder, "model.safetensors.index.json")).at("weight_map").size(),
            WeightSet(real_files(), folder).tensors().size());
  EXPECT_EQ(largest_difference(source, folder), 0);
  EXPECT_EQ(Tokenizer::load(real_files(), folder).fingerprint(), source.tokenizer.fingerprint());
  EXPECT_EQ(read_json(join_path(folder, "config.json")).at("model_type").as_string(), "llama");
  EXPECT_EQ(read_json(join_path(folder, "export_check.json")), report.check);
  expect_good_report(report.check, true);
}

TEST(Export, OneFileHasNoIndex) {
  const Source source;
  source.run({.out = "one"});
  EXPECT_TRUE(real_files().exists(source.out("one/model.safetensors")));
  EXPECT_FALSE(real_files().exists(source.out("one/model.safetensors.index.json")));
  EXPECT_EQ(largest_difference(source, source.out("one")), 0);
}

TEST(Export, TheDtypeIsThatOfTheBaseUnlessAnotherIsAskedFor) {
  for (const DType stored : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(stored));
    const Source source(export_config(), export_adapter(), stored);
    expect_good_report(source.run({.out = "kept"}).check, stored == DType::f32);
    source.run({.out = "wide", .dtype = DType::f32});
    for (const auto& [name, wanted] : {std::pair{"kept", stored}, {"wide", DType::f32}}) {
      const WeightSet weights(real_files(), source.out(name));
      for (const auto& [tensor, entry] : weights.tensors())
        EXPECT_EQ(dtype_from_safetensors(entry.info->dtype), wanted) << tensor;
      EXPECT_EQ(read_json(source.out(format("{}/config.json", name))).at("torch_dtype").as_string(),
                wanted == DType::f32   ? "float32"
                : wanted == DType::f16 ? "float16"
                                       : "bfloat16");
    }
    EXPECT_EQ(largest_difference(source, source.out("wide")), 0);
    // A bf16 value keeps 8 bits, an f16 one 11; no weight is beyond 4.
    EXPECT_LE(largest_difference(source, source.out("kept")), stored == DType::bf16 ? 0.0079 : 0.001);
  }
}

TEST(Export, PeftAdaptersKeepRanksAndAlphasOfTheirModules) {
  for (const bool rslora : {false, true}) {
    AdapterSpec spec = export_adapter();
    spec.rslora = rslora;
    spec.additional_targets = {"lm_head"};
    const Source source(export_config(), spec);
    const ExportReport report = source.run({.format = ExportFormat::peft, .out = "adapter"});
    expect_good_report(report.check, true);
    const std::string folder = source.out("adapter");
    const Json config = read_json(join_path(folder, "adapter_config.json"));
    EXPECT_EQ(config.at("r").as_int(), 4);
    EXPECT_EQ(config.at("lora_alpha").as_double(), 6);
    EXPECT_EQ(config.at("use_rslora").as_bool(), rslora);
    EXPECT_EQ(config.at("rank_pattern").dump(),
              R"({"model.layers.0.self_attn.v_proj": 2, "model.layers.1.self_attn.v_proj": 2, )"
              R"("model.layers.1.mlp.up_proj": 3})");
    EXPECT_EQ(config.at("alpha_pattern").size(), 2u);
    EXPECT_EQ(config.at("base_model_name_or_path").as_string(), source.folder / "base");
    WeightPolicy policy(false);
    policy.adapter = read_peft_spec(real_files(), folder);
    LoadedModel read(source.folder / "base", std::move(policy));
    load_peft(real_files(), folder, read.context, read.decoder);
    ASSERT_EQ(read.decoder.parameters().pairs().size(), source.parameters().pairs().size());
    for (const LoraPair& pair : read.decoder.parameters().pairs()) {
      const auto same = std::ranges::find(source.parameters().pairs(), pair.module, &LoraPair::module);
      ASSERT_NE(same, source.parameters().pairs().end()) << pair.module;
      EXPECT_EQ(pair.rank, same->rank) << pair.module;
      EXPECT_EQ(pair.scale, same->scale) << pair.module;
    }
    for (const Parameter& p : read.decoder.parameters().all()) {
      const Parameter& want = *source.parameters().find(p.name);
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.cols; ++c)
          ASSERT_EQ(p.values().row<float>(r)[c], want.values().row<float>(r)[c]) << p.name;
      }
    }
  }
}

// The base's config must not be changed by an export: a copy beside the head makes it another model.
TEST(Export, AnAdaptedTiedHeadIsWrittenBesideTheEmbedding) {
  AdapterSpec spec = export_adapter();
  spec.targets = {"q_proj", "lm_head"};
  const Source source(export_config(32, 40, R"("tie_word_embeddings": true)"), spec);
  expect_good_report(source.run({.out = "merged"}).check, true);
  EXPECT_FALSE(read_json(source.out("merged/config.json")).at("tie_word_embeddings").as_bool());
  const LoadedModel read(source.out("merged"), WeightPolicy(false));
  const Parameter &head = *read.decoder.parameters().find("lm_head.weight"),
                  &embedding = *source.parameters().find("model.embed_tokens.weight");
  EXPECT_EQ(head.values().row<float>(7)[5], source.merged(embedding, 7, true)[5]);
  EXPECT_NE(head.values().row<float>(7)[5], embedding.values().row<float>(7)[5]);
  expect_good_report(
      source.run({.format = ExportFormat::gguf, .out = "merged.gguf", .gguf = QuantFormat::f32}).check, true);
  const GgufFile file(real_files(), source.out("merged.gguf"));
  EXPECT_EQ(reinterpret_cast<const float*>(file.find("output.weight")->bytes.data())[7 * 32 + 5],
            head.values().row<float>(7)[5]);
  EXPECT_EQ(reinterpret_cast<const float*>(file.find("token_embd.weight")->bytes.data())[7 * 32 + 5],
            embedding.values().row<float>(7)[5]);
}

struct GgufCase {
  QuantFormat format;
  QuantFormat wide, table;  // of rows of 256 values, and of the embedding's
  double error;             // of a value, at most; the largest values are about 0.5
  std::size_t notes;        // matrices whose rows do not fit: down_proj, of 40 values
};

class GgufExport : public testing::TestWithParam<GgufCase> {};

TEST_P(GgufExport, HoldsTheMergedModel) {
  const GgufCase& c = GetParam();
  const Source source(export_config(256, 40), export_adapter());
  const ExportReport report =
      source.run({.format = ExportFormat::gguf, .out = "model.gguf", .gguf = c.format});
  EXPECT_EQ(report.files,
            (std::vector<std::string>{source.out("model.gguf"), source.out("model.gguf.check.json")}));
  EXPECT_EQ(read_json(report.files[1]), report.check);
  expect_good_report(report.check, c.format == QuantFormat::f32);

  const GgufFile file(real_files(), report.files[0]);
  EXPECT_EQ(file.find("blk.1.attn_q.weight")->format(), c.wide);
  EXPECT_EQ(file.find("blk.1.attn_norm.weight")->format(), QuantFormat::f32);
  EXPECT_EQ(file.find("token_embd.weight")->format(), c.table);
  EXPECT_EQ(file.find("output.weight")->format(), c.table);
  const bool listed = c.notes > 0;
  EXPECT_EQ(file.find("blk.1.ffn_down.weight")->format(), listed ? QuantFormat::f16 : c.format);
  ASSERT_EQ(report.notes.size(), c.notes);
  if (listed) {
    EXPECT_EQ(report.notes[1], format("blk.1.ffn_down.weight: F16, its rows of 40 values fit no blocks of {}",
                                      name_of(c.format)));
  }
  EXPECT_LE(largest_difference(source, report.files[0]), c.error);
  if (c.error > 0) {
    EXPECT_GT(largest_difference(source, report.files[0]), 0);
  }

  EXPECT_EQ(file.texts("tokenizer.ggml.tokens").size(), 272u) << "one for each row of the embedding";
  const Tokenizer tokenizer = tokenizer_from_gguf(file);
  EXPECT_EQ(tokenizer.fingerprint(), source.tokenizer.fingerprint());
  EXPECT_EQ(tokenizer.chat_template(), source.tokenizer.chat_template());
  EXPECT_EQ(tokenizer.eos_id(), source.tokenizer.eos_id());
}

using Q = QuantFormat;
INSTANTIATE_TEST_SUITE_P(All, GgufExport,
                         testing::Values(GgufCase{Q::f32, Q::f32, Q::f32, 0, 0},
                                         GgufCase{Q::f16, Q::f16, Q::f16, 0.001, 0},
                                         GgufCase{Q::bf16, Q::bf16, Q::bf16, 0.008, 0},
                                         GgufCase{Q::q8_0, Q::q8_0, Q::q8_0, 0.01, 2},
                                         GgufCase{Q::q4_0, Q::q4_0, Q::q8_0, 0.2, 2},
                                         GgufCase{Q::q4_k, Q::q4_k, Q::q8_0, 0.2, 2}),
                         [](const auto& test) { return std::string(name_of(test.param.format)); });

// Rows of 64 values fit no Q4_K block of 256 but Q8_0's of 32; those of 40 fit neither.
TEST(Export, TheNextFormatIsTakenAndListed) {
  const Source source(export_config(64, 40));
  const ExportReport report =
      source.run({.format = ExportFormat::gguf, .out = "model.gguf", .gguf = QuantFormat::q4_k});
  const GgufFile file(real_files(), source.out("model.gguf"));
  EXPECT_EQ(file.find("blk.0.attn_q.weight")->format(), QuantFormat::q8_0);
  EXPECT_EQ(file.find("blk.0.ffn_down.weight")->format(), QuantFormat::f16);
  // Seven matrices a layer; embedding and head are Q8_0 in any case.
  EXPECT_EQ(report.notes.size(), 14u);
  EXPECT_NE(std::ranges::find(report.notes,
                              "blk.0.attn_q.weight: Q8_0, its rows of 64 values fit no blocks of Q4_K"),
            report.notes.end());
}

TEST(Export, LoraAsGguf) {
  for (const bool rslora : {false, true}) {
    AdapterSpec spec = export_adapter();
    spec.rslora = rslora;
    const Source source(export_config(), spec);
    const ExportReport report = source.run({.format = ExportFormat::gguf_lora, .out = "lora.gguf"});
    const GgufFile file(real_files(), source.out("lora.gguf"));
    const double alpha = *file.number("adapter.lora.alpha");
    ASSERT_EQ(file.tensors().size(), 2 * source.parameters().pairs().size());
    const auto places = gguf_places(source.model->config);
    for (const LoraPair& pair : source.parameters().pairs()) {
      SCOPED_TRACE(pair.module);
      const GgufPlace& place = places.at(source.parameters().all()[pair.base].name);
      const GgufTensor *a = file.find(place.name + ".lora_a"), *b = file.find(place.name + ".lora_b");
      ASSERT_TRUE(a != nullptr && b != nullptr);
      const Parameter &our_a = source.parameters().all()[pair.a], &our_b = source.parameters().all()[pair.b];
      EXPECT_EQ(a->shape, (Shape{pair.rank, our_a.cols}));
      EXPECT_EQ(b->shape, (Shape{our_b.rows, pair.rank}));
      const auto* values_a = reinterpret_cast<const float*>(a->bytes.data());
      const auto* values_b = reinterpret_cast<const float*>(b->bytes.data());
      const std::int64_t dim = place.heads > 0 ? our_b.rows / place.heads : 0;
      for (std::int64_t r = 0; r < our_b.rows; ++r) {
        const std::int64_t from = dim > 0 ? r / dim * dim + row_within_head(r % dim, dim) : r;
        for (std::int64_t k = 0; k < pair.rank; ++k) {
          EXPECT_EQ(values_a[k * our_a.cols + 3], our_a.values().row<float>(k)[3]);
          EXPECT_NEAR(values_b[r * pair.rank + k] * alpha / static_cast<double>(pair.rank),
                      double{pair.scale} * double{our_b.values().row<float>(from)[k]}, 1e-6);
        }
      }
    }
    EXPECT_EQ(read_json(source.out("lora.gguf.check.json")), report.check);
    expect_good_report(report.check, true);
  }
}

// Without an adapter, from a file whose blocks were dequantised: the floats are exactly those.
TEST(Export, AQuantisedBaseBecomesFloats) {
  const Source source(export_config(256, 40));
  source.run({.format = ExportFormat::gguf, .out = "base.gguf", .gguf = QuantFormat::q4_0});
  const std::string base = source.out("base.gguf");
  LoadedModel model(base, WeightPolicy(false));
  const Tokenizer tokenizer = tokenizer_from_gguf(GgufFile(real_files(), base));
  const ExportSource from{real_files(), model.context, model.config, model.decoder, tokenizer, base, ""};
  const auto same_values = [&model](const std::string& path) {
    const LoadedModel read(path, WeightPolicy(false));
    for (const Parameter& p : read.decoder.parameters().all()) {
      const Parameter& want = *model.decoder.parameters().find(p.name);
      for (std::int64_t r = 0; r < p.rows; ++r) {
        if (!std::equal(p.values().row<float>(r), p.values().row<float>(r) + p.cols,
                        want.values().row<float>(r)))
          return p.name;
      }
    }
    return std::string();
  };
  ExportOptions options{.out = source.out("folder"), .dtype = DType::f32, .prompts = {"hello world"}};
  export_model(from, options);
  EXPECT_EQ(same_values(options.out), "");
  EXPECT_EQ(Tokenizer::load(real_files(), options.out).fingerprint(), tokenizer.fingerprint());
  options = {.out = source.out("usual"), .prompts = {"hello world"}};
  export_model(from, options);
  EXPECT_EQ(read_json(join_path(options.out, "config.json")).at("torch_dtype").as_string(), "bfloat16");
  options = {.format = ExportFormat::gguf,
             .out = source.out("floats.gguf"),
             .gguf = QuantFormat::f32,
             .prompts = {"hello world"}};
  EXPECT_TRUE(export_model(from, options).notes.empty());
  EXPECT_EQ(same_values(options.out), "");
  // Blocks that are quantised again as they were.
  options.out = source.out("again.gguf");
  options.gguf = QuantFormat::q4_0;
  export_model(from, options);
  EXPECT_LE(largest_difference(source, options.out), 0.2);
}

TEST(Export, AModelfileStandsBesideTheFile) {
  const Source source;
  const ExportReport report =
      source.run({.format = ExportFormat::gguf, .out = "model.gguf", .modelfile = true});
  ASSERT_EQ(source.exported(),
            (std::vector<std::string>{"Modelfile", "model.gguf", "model.gguf.check.json"}));
  EXPECT_EQ(real_files().read(source.out("Modelfile")), "FROM ./model.gguf\nPARAMETER stop \"<|end|>\"\n");
  EXPECT_EQ(report.files.size(), 3u);
}

}  // namespace
}  // namespace lode::test
