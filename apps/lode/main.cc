// The command line: parse, call the library, print. Errors become exit codes here and nowhere else.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>

#include "core/fail.h"
#include "observe/run_record.h"
#include "verbs.h"

namespace {

// A word in a verb's place that is none would only be called "subcommand required".
void check_verbs(const CLI::App& app, int argc, char** argv) {
  const CLI::App* at = &app;
  for (int i = 1; i < argc; ++i) {
    const auto verbs = at->get_subcommands([](const CLI::App*) { return true; });
    if (verbs.empty() || argv[i][0] == '-') return;
    const auto found =
        std::ranges::find(verbs, argv[i], [](const CLI::App* verb) { return verb->get_name(); });
    if (found == verbs.end()) {
      std::string known;
      for (const CLI::App* verb : verbs) known += (known.empty() ? "" : ", ") + verb->get_name();
      lode::fail(lode::ErrorKind::usage, "there is no verb '{}' here; known: {}", argv[i], known);
    }
    at = *found;
  }
}

std::string failure(const CLI::App*, const CLI::Error& error) {
  return "lode: " + std::string(error.what()) + "; --help after the verb explains it\n";
}

int run(int argc, char** argv) {
  CLI::App app("Lodestone trains large language models natively.", "lode");
  app.set_version_flag("--version", "lode " + lode::build_info().version);
  app.require_subcommand(1);
  app.failure_message(failure);
  lode::add_doctor_verb(app);
  lode::add_tokenizer_verb(app);
  lode::add_recipe_verb(app);
  lode::add_data_verb(app);
  lode::add_model_verb(app);
  lode::add_plan_verb(app);
  lode::add_train_verb(app, {argv, static_cast<std::size_t>(argc)});
  lode::add_eval_verb(app);
  lode::add_generate_verb(app);
  lode::add_export_verb(app);
  lode::add_bench_verb(app);
  lode::add_ckpt_verb(app);
  check_verbs(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : lode::exit_code(lode::ErrorKind::usage);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // A closed pipe is an error of the one write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // likewise a file that reaches the size limit
  try {
    return run(argc, argv);
  } catch (const lode::Error& error) {
    std::fprintf(stderr, "lode: %s\n", error.what());
    return lode::exit_code(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lode: internal error: %s\n", error.what());
    return lode::exit_code(lode::ErrorKind::internal);
  }
}
