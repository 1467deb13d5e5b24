#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "core/file.h"
#include "train/inspect_model.h"
#include "verbs.h"

namespace lode {

void add_model_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("model", "Look into models");
  verb->require_subcommand(1);
  struct Arguments {
    std::string path;
    bool json = false, tensors = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* inspect =
      verb->add_subcommand("inspect", "Show architecture, sizes, tensors, tokenizer, template and problems");
  inspect->add_option("path", arguments->path, "a model folder, a GGUF file or an adapter's folder")
      ->required();
  inspect->add_flag("--json", arguments->json, "print JSON");
  inspect->add_flag("--tensors", arguments->tensors, "list every tensor");
  inspect->callback([arguments] {
    const ModelInspection model = inspect_model(real_files(), arguments->path);
    if (arguments->json) {
      std::printf("%s\n", model.to_json(arguments->tensors).dump(2).c_str());
      return;
    }
    for (const std::string& line : model.lines(arguments->tensors)) std::printf("%s\n", line.c_str());
  });
}

}  // namespace lode
