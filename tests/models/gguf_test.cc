// Models as GGUF files: written, read, and what cannot be said.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/gguf_config.h"
#include "models/gguf_export.h"
#include "models/gguf_load.h"
#include "models/gguf_names.h"
#include "models/model_test.h"
#include "nn/quantized.h"

namespace lode::test {
namespace {

RowReader own_rows(Context& context) {
  return [&context](const Parameter& parameter, bool, std::int64_t first, View out) {
    parameter.read_rows(context, first, out);
  };
}

const std::vector<std::string>& configs() {
  static const std::vector<std::string> list{
      llama_config(),
      llama_config(
          R"("tie_word_embeddings": true, "attention_bias": true, "mlp_bias": true, "head_dim": 10)"),
      llama_config(R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "rope_theta": 500000.0)"),
      llama_config(R"("rope_scaling": {"rope_type": "linear", "factor": 2.5})"),
      tiny_config("mistral", R"("sliding_window": 5)"),
      tiny_config("qwen2", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,
          "original_max_position_embeddings": 16})"),
      tiny_config("qwen3", R"("head_dim": 16)"),
      tiny_config("gemma3_text", R"("head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5)", 64,
                  7),
      tiny_config("smollm3"),
      gpt2_config()};
  return list;
}

struct Written {
  TempFolder folder;
  TinyModel model;
  GgufModel plan;

  Written(const std::string& text, QuantFormat format) : model(text) {
    model.decoder.initialise(model.context, 3);
    // Biases and norms begin alike everywhere: make each value its own.
    for (const Parameter& p : model.decoder.parameters().all()) {
      if (!p.vector) continue;
      for (std::int64_t c = 0; c < p.cols; ++c)
        p.values().row<float>(0)[c] += 0.125f * static_cast<float>(c % 13);
    }
    plan = plan_gguf(model.config, model.decoder, format, "tiny");
    write_gguf(model.context, real_files(), folder / "tiny.gguf", model.config, plan, {},
               own_rows(model.context));
  }
};

void expect_same_spec(const DecoderSpec& a, const DecoderSpec& b) {
  EXPECT_EQ(a.model_type, b.model_type);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(a.max_positions, b.max_positions);
  EXPECT_EQ(a.norm_eps, b.norm_eps);
  EXPECT_EQ(a.tied_head, b.tied_head);
  EXPECT_EQ(a.qkv_bias, b.qkv_bias);
  EXPECT_EQ(a.output_bias, b.output_bias);
  EXPECT_EQ(a.mlp_bias, b.mlp_bias);
  EXPECT_EQ(a.rotary.scaling, b.rotary.scaling);
  EXPECT_EQ(a.rotary.theta, b.rotary.theta);
  EXPECT_NEAR(a.rotary.factor, b.rotary.factor, 1e-6);
  EXPECT_NEAR(a.rotary.attention_factor, b.rotary.attention_factor, 1e-6);
  EXPECT_NEAR(a.attention_scale, b.attention_scale, 1e-9);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    EXPECT_EQ(a.layer(i).window, b.layer(i).window) << i;
    EXPECT_EQ(a.layer(i).rotary, b.layer(i).rotary) << i;
  }
}

TEST(GgufModels, RoundTripOfEveryFamily) {
  for (const std::string& text : configs()) {
    SCOPED_TRACE(text);
    Written written(text, QuantFormat::f32);
    const ModelConfig config = read_model_config(real_files(), written.folder.path());
    EXPECT_EQ(config.file, written.folder / "tiny.gguf");
    expect_same_spec(config.spec, written.model.config.spec);
    Decoder read(written.model.context, config.spec, config.names, WeightPolicy(false));
    load_model_weights(real_files(), written.folder.path(), config, read, written.model.context);
    for (const Parameter& p : written.model.decoder.parameters().all()) {
      const Parameter* q = read.parameters().find(p.name);
      ASSERT_NE(q, nullptr) << p.name;
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.cols; ++c) {
          // The norms' offset costs a rounding.
          ASSERT_NEAR(q->values().row<float>(r)[c], p.values().row<float>(r)[c], p.vector ? 3e-7 : 0)
              << p.name << " " << r << " " << c;
        }
      }
    }
  }
}

// Of a matrix larger than what is read at once, heads included; floats and blocks.
TEST(GgufModels, LargeMatricesAreReadInPanels) {
  const std::string wide = R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 1280,
      "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
      "max_position_embeddings": 8})";
  for (const QuantFormat format : {QuantFormat::f32, QuantFormat::f16, QuantFormat::q8_0}) {
    const Written written(wide, format);
    const GgufFile file(real_files(), written.folder / "tiny.gguf");
    const ModelConfig& config = written.model.config;
    WeightPolicy policy(false);
    keep_gguf_formats(file, config, policy);
    Memory memory;
    Workspace workspace(memory);
    Facts facts;
    Context context{.memory = memory, .facts = facts, .kernel = {2, &workspace}};
    Decoder read(context, config.spec, config.names, std::move(policy));
    load_gguf_weights(file, config, read, context);
    for (const std::string name : {"q", "v", "o"}) {
      const std::string full = "model.layers.0.self_attn." + name + "_proj.weight";
      const Parameter &p = *written.model.decoder.parameters().find(full), &q = *read.parameters().find(full);
      EXPECT_EQ(q.quantized(), format == QuantFormat::q8_0);
      const Tensor values(memory, MemoryTag::data, DType::f32, q.rows, q.cols);
      q.read_rows(context, 0, values.view());
      double largest = 0;
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.cols; ++c)
          largest = std::max(largest, std::abs(static_cast<double>(values.view().row<float>(r)[c] -
                                                                   p.values().row<float>(r)[c])));
      }
      // Values have a deviation of 0.02: half a step of the largest of a block, or of f16.
      EXPECT_LE(largest, format == QuantFormat::f32 ? 0 : 0.0005) << name;
    }
  }
}

// Row 2 d + s of a head there is row s D / 2 + d here; only of queries and keys, and only in some families.
TEST(GgufModels, QueriesAndKeysAreInPairsThere) {
  for (const std::string family : {"llama", "qwen2"}) {
    Written written(tiny_config(family, family == "llama" ? R"("attention_bias": true)" : ""),
                    QuantFormat::f32);
    const GgufFile file(real_files(), written.folder / "tiny.gguf");
    const ParameterList& list = written.model.decoder.parameters();
    for (const std::string name : {"q", "k", "v"}) {
      const Parameter& weight = *list.find("model.layers.1.self_attn." + name + "_proj.weight");
      const Parameter& bias = *list.find("model.layers.1.self_attn." + name + "_proj.bias");
      const auto* there =
          reinterpret_cast<const float*>(file.find("blk.1.attn_" + name + ".weight")->bytes.data());
      const auto* bias_there =
          reinterpret_cast<const float*>(file.find("blk.1.attn_" + name + ".bias")->bytes.data());
      for (std::int64_t row = 0; row < weight.rows; ++row) {
        std::int64_t here = row;
        if (family == "llama" && name != "v") here = row / 8 * 8 + row % 2 * 4 + row % 8 / 2;
        EXPECT_EQ(there[row * 32 + 3], weight.values().row<float>(here)[3]) << name << row;
        EXPECT_EQ(bias_there[row], bias.values().row<float>(0)[here]) << name << row;
      }
    }
  }
}

TEST(GgufModels, NormsOfGemmaAreOneMoreThere) {
  Written written(configs()[7], QuantFormat::f32);
  const GgufFile file(real_files(), written.folder / "tiny.gguf");
  for (const auto& [here, there] : std::vector<std::pair<std::string, std::string>>{
           {"model.norm.weight", "output_norm.weight"},
           {"model.layers.2.pre_feedforward_layernorm.weight", "blk.2.ffn_norm.weight"},
           {"model.layers.2.post_attention_layernorm.weight", "blk.2.post_attention_norm.weight"},
           {"model.layers.2.self_attn.q_norm.weight", "blk.2.attn_q_norm.weight"}}) {
    const Parameter& p = *written.model.decoder.parameters().find(here);
    const auto* values = reinterpret_cast<const float*>(file.find(there)->bytes.data());
    EXPECT_EQ(values[5], p.values().row<float>(0)[5] + 1) << here;
  }
}

TEST(GgufModels, QuantisedFilesStayCloseAndKeepTheirBlocks) {
  for (const QuantFormat format :
       {QuantFormat::f16, QuantFormat::bf16, QuantFormat::q8_0, QuantFormat::q4_0}) {
    SCOPED_TRACE(name_of(format));
    Written written(llama_config(), format);
    const std::string path = written.folder / "tiny.gguf";
    const GgufFile file(real_files(), path);
    EXPECT_EQ(file.find("blk.0.attn_q.weight")->format(), format);
    EXPECT_EQ(file.find("blk.0.attn_norm.weight")->format(), QuantFormat::f32);
    EXPECT_EQ(file.find("token_embd.weight")->format(),
              format == QuantFormat::q4_0 ? QuantFormat::q8_0 : format);
    // Rows of 40 values fit no block of 32.
    const bool blocks = format >= QuantFormat::q4_0;
    EXPECT_EQ(file.find("blk.0.ffn_down.weight")->format(), blocks ? QuantFormat::f16 : format);
    EXPECT_EQ(written.plan.substitutions.size(), blocks ? 4u : 0u);

    const ModelConfig config = read_model_config(real_files(), path);
    Context& context = written.model.context;
    WeightPolicy policy(false);
    keep_gguf_formats(file, config, policy);
    Decoder kept(context, config.spec, config.names, policy),
        floats(context, config.spec, config.names, WeightPolicy(false));
    load_model_weights(real_files(), path, config, kept, context);
    load_model_weights(real_files(), path, config, floats, context);
    for (const Parameter& p : kept.parameters().all()) {
      const Parameter& f = *floats.parameters().find(p.name);
      const Parameter& original = *written.model.decoder.parameters().find(p.name);
      if (p.name == "model.layers.0.self_attn.q_proj.weight") {
        EXPECT_EQ(p.quantized(), blocks);
      }
      std::vector<float> row(static_cast<std::size_t>(p.cols));
      double most = 0;
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.cols; ++c)
          most = std::max(most, std::abs(double{original.values().row<float>(r)[c]}));
      }
      for (std::int64_t r = 0; r < p.rows; ++r) {
        p.read_rows(context, r, {row.data(), DType::f32, 1, p.cols, p.cols});
        for (std::int64_t c = 0; c < p.cols; ++c) {
          ASSERT_EQ(row[static_cast<std::size_t>(c)], f.values().row<float>(r)[c]) << p.name;
          ASSERT_NEAR(row[static_cast<std::size_t>(c)], original.values().row<float>(r)[c], 0.13 * most)
              << p.name;
        }
      }
    }
  }
}

std::string load_error(const std::string& path) {
  return error_of([&] {
    const ModelConfig config = read_model_config(real_files(), path);
    Memory memory;
    Facts facts;
    Workspace workspace{memory};
    Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
    Decoder decoder(context, config.spec, config.names, WeightPolicy(false));
    load_model_weights(real_files(), path, config, decoder, context);
  });
}

// A file of the plan with other fields and tensors, all values 0.
std::string changed_error(const std::function<void(GgufFields&, std::vector<GgufTensorSpec>&)>& change,
                          const std::string& text = llama_config()) {
  Written written(text, QuantFormat::f32);
  GgufFields fields = written.plan.fields;
  std::vector<GgufTensorSpec> specs = written.plan.specs;
  change(fields, specs);
  const std::string path = written.folder / "changed.gguf";
  GgufWriter writer(real_files(), path, fields, specs);
  for (const GgufTensorSpec& spec : specs) writer.write(std::vector<std::byte>(spec.bytes()));
  writer.finish();
  return load_error(path);
}

void set(GgufFields& fields, const std::string& key, const GgufValue& value) {
  std::erase_if(fields, [&](const auto& field) { return field.first == key; });
  fields.emplace_back(key, value);
}

TEST(GgufModels, EveryProblemIsListed) {
  const std::string message = changed_error([](GgufFields&, std::vector<GgufTensorSpec>& specs) {
    for (GgufTensorSpec& spec : specs) {
      if (spec.name == "blk.0.attn_q.weight") spec.name = "blk.0.attn_x.weight";
      if (spec.name == "blk.1.attn_k.weight") spec.shape = {8, 32};
    }
  });
  for (const std::string part :
       {"\"blk.0.attn_q.weight\" [32, 32] is missing", "\"blk.0.attn_x.weight\" [32, 32] is not expected",
        "\"blk.1.attn_k.weight\": expected shape [16, 32], found [8, 32]"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

TEST(GgufModels, BadMetadataNamesTheKey) {
  const struct {
    std::string key;
    GgufValue value;
    std::string message;
  } rows[] = {{"general.architecture", std::string("mamba"), "\"mamba\" is not supported; known: llama"},
              {"general.type", std::string("adapter"), "general.type"},
              {"llama.block_count", std::uint32_t{4000000000u}, "llama.block_count"},
              {"llama.attention.head_count", std::uint32_t{0}, "llama.attention.head_count"},
              {"llama.attention.head_count", std::string("four"), "llama.attention.head_count"},
              {"llama.feed_forward_length", std::vector<std::int32_t>{40, 41}, "llama.feed_forward_length"},
              {"llama.rope.scaling.type", std::string("longrope"), "llama.rope.scaling.type"},
              {"llama.rope.dimension_count", std::uint32_t{4}, "llama.rope.dimension_count"},
              {"llama.attention.value_length", std::uint32_t{4}, "llama.attention.value_length"},
              {"llama.expert_count", std::uint32_t{8}, "llama.expert_count"}};
  for (const auto& row : rows) {
    const std::string message =
        changed_error([&](GgufFields& fields, auto&) { set(fields, row.key, row.value); });
    EXPECT_NE(message.find(row.message), std::string::npos) << row.key << ": " << message;
  }
  EXPECT_NE(changed_error([](GgufFields& fields, auto&) {
              std::erase_if(fields, [](const auto& f) { return f.first == "llama.embedding_length"; });
            }).find("\"llama.embedding_length\" is missing"),
            std::string::npos);
}

TEST(GgufModels, UnknownFrequencyDivisorsAreRefused) {
  const std::string message = changed_error([](GgufFields&, std::vector<GgufTensorSpec>& specs) {
    specs.push_back({"rope_freqs.weight", {4}, QuantFormat::f32});
  });
  EXPECT_NE(message.find("rope_freqs.weight"), std::string::npos) << message;
}

TEST(GgufModels, FoldersWithSeveralOrNone) {
  const TempFolder folder;
  EXPECT_NE(error_of([&] { read_model_config(real_files(), folder.path()); }).find("config.json"),
            std::string::npos);
  for (const std::string name : {"a.gguf", "b.gguf"}) write_file_atomically(real_files(), folder / name, "x");
  EXPECT_NE(error_of([&] { read_model_config(real_files(), folder.path()); }).find("a.gguf, b.gguf"),
            std::string::npos);
}

TEST(GgufModels, WhatGgufCannotSayIsRefused) {
  for (const std::string& text :
       {llama_config(R"("rope_scaling": {"rope_type": "dynamic", "factor": 2.0})"),
        tiny_config("qwen2", R"("use_sliding_window": true, "max_window_layers": 1, "sliding_window": 5)"),
        tiny_config("gemma3_text", R"("head_dim": 16, "query_pre_attn_scalar": 20)"),
        gpt2_config(R"("scale_attn_by_inverse_layer_idx": true)")}) {
    TinyModel model(text);
    const std::string message =
        error_of([&] { plan_gguf(model.config, model.decoder, QuantFormat::f32, "tiny"); });
    EXPECT_NE(message.find("GGUF cannot say"), std::string::npos) << text << message;
  }
}

struct AdapterFile {
  TinyModel model{llama_config()};
  Decoder decoder;
  TempFolder folder;
  std::string path = folder / "a.gguf";

  AdapterFile() : decoder(model.context, model.config.spec, model.config.names, policy()) {
    for (const LoraPair& pair : decoder.parameters().pairs()) {
      for (const std::size_t index : {pair.a, pair.b})
        initialise(model.context, decoder.parameters().all()[index], 5);
      const View b = decoder.parameters().all()[pair.b].values();
      for (std::int64_t r = 0; r < b.rows; ++r) {
        for (std::int64_t c = 0; c < b.cols; ++c) b.row<float>(r)[c] = static_cast<float>(r * 10 + c + 1);
      }
    }
    write_gguf_adapter(model.context, real_files(), path, model.config, decoder, "tiny");
  }
  static WeightPolicy policy() {
    WeightPolicy policy(false);
    policy.adapter = AdapterSpec{.rank = 4, .alpha = 6, .rslora = true, .ranks = {{"v_proj", 2}}};
    return policy;
  }
  // The file's adapter on a decoder of its own.
  std::unique_ptr<Decoder> read(const std::string& file) {
    const GgufFile gguf(real_files(), file);
    WeightPolicy own(false);
    own.adapter = read_gguf_adapter_spec(gguf, model.config);
    auto out = std::make_unique<Decoder>(model.context, model.config.spec, model.config.names, own);
    load_gguf_adapter(gguf, model.config, *out, model.context);
    return out;
  }
};

// The file's pairs, scaled as its readers do, are the decoder's.
TEST(GgufModels, AdapterFiles) {
  AdapterFile written;
  const Decoder& decoder = written.decoder;
  const GgufFile file(real_files(), written.path);
  EXPECT_EQ(file.text("general.type"), "adapter");
  EXPECT_EQ(file.text("adapter.type"), "lora");
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.tensors().size(), 2 * decoder.parameters().pairs().size());
  const double alpha = *file.number("adapter.lora.alpha");
  for (const LoraPair& pair : decoder.parameters().pairs()) {
    const bool q = pair.module == "model.layers.2.self_attn.q_proj",
               v = pair.module == "model.layers.2.self_attn.v_proj";
    if (!q && !v) continue;
    const std::string name = q ? "blk.2.attn_q.weight" : "blk.2.attn_v.weight";
    const GgufTensor *a = file.find(name + ".lora_a"), *b = file.find(name + ".lora_b");
    ASSERT_TRUE(a != nullptr && b != nullptr);
    EXPECT_EQ(a->shape, (Shape{pair.rank, 32}));
    const Parameter& here = decoder.parameters().all()[pair.b];
    EXPECT_EQ(b->shape, (Shape{here.rows, pair.rank}));
    const auto* there = reinterpret_cast<const float*>(b->bytes.data());
    const std::int64_t row = 3, from = q ? 1 * 4 + 1 : 3;  // of a head of 8: pair 1, second half
    for (std::int64_t c = 0; c < pair.rank; ++c) {
      EXPECT_NEAR(there[row * pair.rank + c] * alpha / static_cast<double>(pair.rank),
                  here.values().row<float>(from)[c] * pair.scale, 1e-4)
          << name << c;
    }
  }
}

TEST(GgufModels, AdapterFilesComeBack) {
  AdapterFile written;
  const std::unique_ptr<Decoder> read = written.read(written.path);
  ASSERT_EQ(read->parameters().pairs().size(), written.decoder.parameters().pairs().size());
  for (const LoraPair& pair : written.decoder.parameters().pairs()) {
    const auto same = std::ranges::find(read->parameters().pairs(), pair.module, &LoraPair::module);
    ASSERT_NE(same, read->parameters().pairs().end()) << pair.module;
    EXPECT_EQ(same->rank, pair.rank) << pair.module;
    const std::vector<Parameter>&from = written.decoder.parameters().all(), &to = read->parameters().all();
    for (std::int64_t r = 0; r < from[pair.a].rows; ++r) {
      for (std::int64_t c = 0; c < from[pair.a].cols; ++c)
        ASSERT_EQ(to[same->a].values().row<float>(r)[c], from[pair.a].values().row<float>(r)[c])
            << pair.module;
    }
    for (std::int64_t r = 0; r < from[pair.b].rows; ++r) {
      for (std::int64_t c = 0; c < pair.rank; ++c) {
        const double want = double{pair.scale} * double{from[pair.b].values().row<float>(r)[c]};
        ASSERT_NEAR(double{same->scale} * double{to[same->b].values().row<float>(r)[c]}, want, 1e-6 * want)
            << pair.module << " " << r << " " << c;
      }
    }
  }
}

TEST(GgufModels, AdapterFilesThatDoNotFitAreRefused) {
  AdapterFile written;
  const GgufFile file(real_files(), written.path);
  GgufFields fields{{"general.architecture", std::string("llama")},
                    {"general.type", std::string("adapter")},
                    {"adapter.type", std::string("lora")},
                    {"adapter.lora.alpha", 6.0f}};
  std::vector<GgufTensorSpec> specs;
  for (const GgufTensor& tensor : file.tensors())
    specs.push_back({std::string(tensor.name), tensor.shape, QuantFormat::f32});
  const auto changed = [&](auto change) {
    GgufFields own = fields;
    std::vector<GgufTensorSpec> tensors = specs;
    change(own, tensors);
    const std::string path = written.folder / "changed.gguf";
    GgufWriter writer(real_files(), path, own, tensors);
    for (const GgufTensorSpec& spec : tensors) writer.write(std::vector<std::byte>(spec.bytes()));
    writer.finish();
    return error_of([&] { written.read(path); });
  };
  using Specs = std::vector<GgufTensorSpec>;
  EXPECT_EQ(changed([](GgufFields&, Specs&) {}), "");
  const auto expect = [](const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  for (const std::string key : {"general.architecture", "general.type", "adapter.type"}) {
    const std::string error = changed([&](GgufFields& own, Specs&) { set(own, key, std::string("other")); });
    expect(error, key);
    expect(error, "\"other\"");
  }
  expect(changed([](GgufFields& own, Specs&) { own.pop_back(); }), "\"adapter.lora.alpha\" is missing");
  expect(changed([](GgufFields&, Specs& tensors) { tensors.clear(); }), "no tensor of an adapter");
  expect(changed([](GgufFields&, Specs& tensors) { tensors[1].name += "x"; }),
         "lora_bx\" [32, 4] is not expected");
  expect(changed([](GgufFields&, Specs& tensors) { tensors[0].name = "blk.9.attn_q.weight.lora_a"; }),
         "blk.9.attn_q.weight.lora_a\" [4, 32] is not expected");
  expect(changed([](GgufFields&, Specs& tensors) { tensors.erase(tensors.begin() + 1); }),
         ".lora_b\" [32, 4] is missing");
  expect(changed([](GgufFields&, Specs& tensors) {
           tensors[0].shape = {4, 30};
         }),
         "expected shape [4, 32], found [4, 30]");
  expect(changed([](GgufFields&, Specs& tensors) { tensors[0].shape = {0, 32}; }), "it must be at least 1");
}

}  // namespace
}  // namespace lode::test
