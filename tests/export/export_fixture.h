// A tiny base model in a folder, with an adapter on it or without, ready to be exported.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "export/export.h"
#include "io/weights.h"
#include "models/model_test.h"
#include "models/peft.h"
#include "text/small_tokenizer.h"

namespace lode::test {

// What exports need; small_document()'s tokenizer has 271 ids.
inline std::string export_config(int hidden = 32, int intermediate = 40, const std::string& overrides = "") {
  return format(R"({{"model_type": "llama", "vocab_size": 272, "hidden_size": {}, "intermediate_size": {}, )"
                R"("num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, )"
                R"("max_position_embeddings": 96)",
                hidden, intermediate) +
         (overrides.empty() ? "" : ", " + overrides) + "}";
}

inline Tokenizer export_tokenizer() {
  return load_document(
      small_document(),
      Json::object({{"eos_token", "<|end|>"},
                    {"chat_template", "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}"}}));
}

inline AdapterSpec export_adapter() {
  return {.rank = 4,
          .alpha = 6,
          .targets = {"all"},
          .ranks = {{"v_proj", 2}, {"layers.1.mlp.up_proj", 3}},
          .alphas = {{"k_proj", 16}}};
}

// Rewrites a folder's weights in another dtype.
inline void write_weights(const std::string& folder, const ParameterList& parameters, DType dtype) {
  std::vector<TensorSpec> specs;
  std::vector<const Parameter*> list;
  const std::vector<TensorSpec> all = file_tensors(parameters, dtype);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (parameters.all()[i].role != ParameterRole::base) continue;
    specs.push_back(all[i]);
    list.push_back(&parameters.all()[i]);
  }
  write_safetensors(real_files(), join_path(folder, "model.safetensors"), specs,
                    [&](std::size_t i) -> ConstView { return list[i]->values(); });
}

struct LoadedModel {
  Memory memory;
  Facts facts;
  Workspace workspace{memory};
  Context context{.memory = memory, .facts = facts, .kernel = {1, &workspace}};
  ModelConfig config;
  Decoder decoder;

  LoadedModel(const std::string& path, WeightPolicy policy)
      : config(read_model_config(real_files(), path)),
        decoder(context, config.spec, config.names, std::move(policy)) {
    load_model_weights(real_files(), path, config, decoder, context);
  }
};

// folder/base holds the model; folder/out is for exports.
class Source {
 public:
  explicit Source(const std::string& config = export_config(), std::optional<AdapterSpec> adapter = {},
                  DType stored = DType::f32)
      : tokenizer(export_tokenizer()) {
    const std::string base = folder / "base";
    real_files().make_directory(base);
    real_files().make_directory(folder / "out");
    write_file_atomically(real_files(), join_path(base, "config.json"), config);
    tokenizer.save(real_files(), base);
    {
      const TinyModel random(config);
      fill_by_rule(random.decoder.parameters());
      write_weights(base, random.decoder.parameters(), stored);
    }
    WeightPolicy policy(false);
    policy.adapter = adapter;
    model = std::make_unique<LoadedModel>(base, std::move(policy));
    for (const Parameter& p : parameters().all()) {
      if (p.role == ParameterRole::base) continue;
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.cols; ++c)
          p.values().row<float>(r)[c] = fill_value(p, stored_index(p, r, c));
      }
      p.storage->changed(false);
    }
    has_adapter_ = adapter.has_value();
  }

  const ParameterList& parameters() const { return model->decoder.parameters(); }
  std::string out(const std::string& name) const { return folder / ("out/" + name); }
  std::vector<std::string> exported() const { return real_files().list(folder / "out"); }

  // options.out is a name in folder/out.
  ExportReport run(ExportOptions options, FileSystem& files = real_files()) const {
    options.out = out(options.out);
    if (options.prompts.empty()) options.prompts = {"hello world", "123 and \xe4\xb8\xad"};
    return export_model({files, model->context, model->config, model->decoder, tokenizer, folder / "base",
                         has_adapter_ ? folder / "adapter" : std::string()},
                        options);
  }

  // Row `row` of a base parameter with the adapter in it.
  std::vector<float> merged(const Parameter& parameter, std::int64_t row, bool as_head = false) const {
    std::vector<float> values(static_cast<std::size_t>(parameter.cols));
    merged_rows(model->context, parameters(), parameters().index_of(parameter.name), as_head, row,
                {values.data(), DType::f32, 1, parameter.cols, parameter.cols});
    return values;
  }

  TempFolder folder;
  Tokenizer tokenizer;
  std::unique_ptr<LoadedModel> model;

 private:
  bool has_adapter_ = false;
};

// The largest difference between the merged model and the one in `path`, over its parameters.
inline double largest_difference(const Source& source, const std::string& path) {
  const LoadedModel read(path, WeightPolicy(false));
  double largest = 0;
  for (const Parameter& p : read.decoder.parameters().all()) {
    const Parameter* from = source.parameters().find(p.name);
    if (from == nullptr) return INFINITY;
    for (std::int64_t r = 0; r < p.rows; ++r) {
      const std::vector<float> want = source.merged(*from, r);
      for (std::int64_t c = 0; c < p.cols; ++c) {
        const double difference =
            std::abs(double{want[static_cast<std::size_t>(c)]} - double{p.values().row<float>(r)[c]});
        largest = difference <= largest ? largest : difference;
      }
    }
  }
  return largest;
}

}  // namespace lode::test
