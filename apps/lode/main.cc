// The command line: parse, call the library, print. Errors become exit codes here and nowhere else.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "lode/error.h"
#include "observe/run_record.h"
#include "verbs.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("Lodestone trains large language models natively.", "lode");
  app.set_version_flag("--version", "lode " + lode::build_info().version);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  lode::add_doctor_verb(app);
  lode::add_tokenizer_verb(app);
  lode::add_recipe_verb(app);
  lode::add_train_verb(app, {argv, static_cast<std::size_t>(argc)});
  lode::add_eval_verb(app);
  lode::add_generate_verb(app);
  lode::add_bench_verb(app);
  lode::add_ckpt_verb(app);
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
