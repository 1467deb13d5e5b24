#include "models/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"
#include "models/model_test.h"
#include "nn/quantized.h"

namespace lode::test {
namespace {

// Writes tensors whose values follow the fill rule, under names and with shapes of the test's choice.
struct Files {
  TempFolder folder;
  std::vector<TensorSpec> specs;
  std::vector<std::vector<float>> values;

  void add(const std::string& name, const Shape& shape, float base = 0) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    specs.push_back({name, DType::f32, shape});
    values.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) {
      values.back().push_back(base + static_cast<float>(0.25 * fill_uniform(name, i)));
    }
  }
  void write() const {
    write_safetensors(real_files(), folder / "model.safetensors", specs, [this](std::size_t i) {
      const MatrixSize size = matrix_size(specs[i].shape);
      return ConstView{values[i].data(), DType::f32, size.rows, size.cols, size.cols};
    });
  }
  std::string load(TinyModel& model) const {
    return error_of(
        [&] { load_model_weights(real_files(), folder.path(), model.config, model.decoder, model.context); });
  }
};

std::string one_layer(const std::string& family, const std::string& more = "") {
  return family == "gpt2"
             ? R"({"model_type": "gpt2", "vocab_size": 11, "n_embd": 6, "n_layer": 1, "n_head": 2,
      "n_positions": 5, "n_inner": 10)" +
                   more + "}"
             : R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 6, "intermediate_size": 10,
      "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 5)" +
                   more + "}";
}

void add_gpt2(Files& files, const std::string& prefix) {
  files.add(prefix + "wte.weight", {11, 6});
  files.add(prefix + "wpe.weight", {5, 6});
  for (const std::string norm : {"h.0.ln_1", "h.0.ln_2", "ln_f"}) {
    files.add(prefix + norm + ".weight", {6}, 1);
    files.add(prefix + norm + ".bias", {6});
  }
  files.add(prefix + "h.0.attn.c_attn.weight", {6, 18});
  files.add(prefix + "h.0.attn.c_attn.bias", {18});
  files.add(prefix + "h.0.attn.c_proj.weight", {6, 6});
  files.add(prefix + "h.0.attn.c_proj.bias", {6});
  files.add(prefix + "h.0.mlp.c_fc.weight", {6, 10});
  files.add(prefix + "h.0.mlp.c_fc.bias", {10});
  files.add(prefix + "h.0.mlp.c_proj.weight", {10, 6});
  files.add(prefix + "h.0.mlp.c_proj.bias", {6});
}

void add_llama(Files& files, bool head = true) {
  const std::string layer = "model.layers.0.";
  files.add("model.embed_tokens.weight", {11, 6});
  for (const std::string& norm :
       {layer + "input_layernorm", layer + "post_attention_layernorm", std::string("model.norm")}) {
    files.add(norm + ".weight", {6}, 1);
  }
  files.add(layer + "self_attn.q_proj.weight", {6, 6});
  files.add(layer + "self_attn.k_proj.weight", {2, 6});
  files.add(layer + "self_attn.v_proj.weight", {2, 6});
  files.add(layer + "self_attn.o_proj.weight", {6, 6});
  files.add(layer + "mlp.gate_proj.weight", {10, 6});
  files.add(layer + "mlp.up_proj.weight", {10, 6});
  files.add(layer + "mlp.down_proj.weight", {6, 10});
  if (head) files.add("lm_head.weight", {11, 6});
}

// Every parameter has the numbers of the stored tensor `prefix` + its name, each where it belongs.
void expect_loaded(const TinyModel& model, const std::string& dropped_prefix = "") {
  for (const Parameter& p : model.decoder.parameters().all()) {
    Parameter named{.name = p.name.substr(dropped_prefix.size()), .cols = p.cols, .vector = p.vector};
    for (std::int64_t r = 0; r < p.rows; ++r) {
      for (std::int64_t c = 0; c < p.cols; ++c) {
        ASSERT_EQ(p.values().row<float>(r)[c], fill_value(named, stored_index(p, r, c)))
            << p.name << " " << r << " " << c;
      }
    }
  }
}

TEST(Weights, LoadsLlama) {
  Files files;
  add_llama(files);
  files.add("model.layers.0.self_attn.rotary_emb.inv_freq", {1});  // in old files
  files.write();
  TinyModel model(one_layer("llama"));
  EXPECT_EQ(files.load(model), "");
  expect_loaded(model);
}

TEST(Weights, LoadsGpt2WithAndWithoutPrefix) {
  for (const std::string prefix : {"transformer.", ""}) {
    Files files;
    add_gpt2(files, prefix);
    files.add(prefix + "h.0.attn.bias", {1, 1, 5, 5});  // the causal mask in old files
    files.add(prefix + "h.0.attn.masked_bias", {});
    files.write();
    TinyModel model(one_layer("gpt2"));
    EXPECT_EQ(files.load(model), "");
    expect_loaded(model, prefix.empty() ? "transformer." : "");
  }
}

TEST(Weights, TheHeadOfATiedModelIsLeftAside) {
  Files files;
  add_llama(files);
  files.write();
  TinyModel tied(one_layer("llama", R"(, "tie_word_embeddings": true)"));
  EXPECT_EQ(files.load(tied), "");
  EXPECT_EQ(tied.decoder.parameters().find("lm_head.weight"), nullptr);
}

TEST(Weights, ListsEveryMissingExtraAndMisshapenTensor) {
  Files files;
  add_llama(files, false);
  files.specs[0].name = "model.embed_tokens.weights";
  files.specs[5].shape = {6, 2};  // k_proj
  files.add("model.layers.1.mlp.up_proj.weight", {10, 6});
  files.write();
  TinyModel model(one_layer("llama"));
  const std::string message = files.load(model);
  for (const std::string part : {"model.embed_tokens.weight", "model.embed_tokens.weights", "lm_head.weight",
                                 "model.layers.1.mlp.up_proj.weight", "k_proj.weight", "[6, 2]", "[2, 6]"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

TEST(Weights, RoundTrip) {
  for (const std::string family : {"llama", "gpt2"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TinyModel first(one_layer(family)), second(one_layer(family));
      first.decoder.initialise(first.context, 5);
      const auto& parameters = first.decoder.parameters().all();
      const std::vector<TensorSpec> specs = file_tensors(first.decoder.parameters(), dtype);
      ASSERT_EQ(specs.size(), parameters.size());
      const TempFolder folder;
      write_safetensors(real_files(), folder / "model.safetensors", specs,
                        [&](std::size_t i) { return ConstView(parameters[i].values()); });
      load_model_weights(real_files(), folder.path(), second.config, second.decoder, second.context);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const View a = parameters[i].values(), b = second.decoder.parameters().all()[i].values();
        for (std::int64_t r = 0; r < a.rows; ++r) {
          for (std::int64_t c = 0; c < a.cols; ++c) {
            const float want = dtype == DType::f32 ? a.row<float>(r)[c] : to_f32(to_bf16(a.row<float>(r)[c]));
            ASSERT_EQ(b.row<float>(r)[c], want) << parameters[i].name;
          }
        }
      }
    }
  }
}

// Loading is seen by products that use a bf16 copy made before.
TEST(Weights, LoadingRefreshesCopies) {
  Files files;
  add_llama(files);
  files.write();
  TinyModel model(one_layer("llama"));
  model.decoder.initialise(model.context, 1);
  ParameterStorage& head = *model.decoder.parameters().find("lm_head.weight")->storage;
  head.acquire(model.context, DType::bf16);
  EXPECT_EQ(files.load(model), "");
  EXPECT_EQ(head.acquire(model.context, DType::bf16).row<bf16>(0)->bits,
            to_bf16(head.values().view().row<float>(0)[0]).bits);
}

// The bytes of a model that was quantised as a whole, whatever the file's type; more rows than a panel has.
TEST(LoadWeights, QuantisesInPanels) {
  const std::string wide = R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 1280,
      "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
      "max_position_embeddings": 8})";
  TinyModel model(wide);
  model.decoder.initialise(model.context, 3);
  const auto& all = model.decoder.parameters().all();
  for (const DType dtype : {DType::f32, DType::f16}) {
    const TempFolder folder;
    write_safetensors(real_files(), folder / "model.safetensors",
                      file_tensors(model.decoder.parameters(), dtype),
                      [&](std::size_t i) -> ConstView { return all[i].values(); });
    Memory memory;
    Workspace workspace(memory);
    Facts facts;
    Context context{.memory = memory, .facts = facts, .kernel = {2, &workspace}};
    WeightPolicy policy(false);
    quantize_linears(policy, QuantFormat::int8);
    Decoder read(context, model.config.spec, model.config.names, std::move(policy));
    load_model_weights(real_files(), folder.path(), model.config, read, context);
    const std::string name = "model.layers.0.self_attn.q_proj.weight";
    const Parameter &p = *model.decoder.parameters().find(name), &q = *read.parameters().find(name);
    ASSERT_TRUE(q.quantized());
    const Tensor rounded(memory, MemoryTag::data, dtype, p.rows, p.cols),
        values(memory, MemoryTag::data, DType::f32, p.rows, p.cols);
    convert(context.kernel, p.values(), rounded.view());
    convert(context.kernel, rounded.view(), values.view());
    const auto bytes = static_cast<std::size_t>(p.rows * row_bytes(QuantFormat::int8, p.cols));
    std::vector<std::byte> expected(bytes);
    quantize_rows(context.kernel, QuantFormat::int8, values.view(), expected.data());
    const auto kept = dynamic_cast<QuantizedStorage&>(*q.storage).band_bytes(q.begin);
    EXPECT_TRUE(std::ranges::equal(kept, expected)) << name_of(dtype);
  }
}

}  // namespace
}  // namespace lode::test
