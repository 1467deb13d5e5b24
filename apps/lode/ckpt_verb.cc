#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "core/parallel.h"
#include "io/checkpoint.h"
#include "lode/error.h"
#include "verbs.h"

namespace lode {
namespace {

Json to_json(const CheckpointReport& report) {
  Json problems = Json::array(), good = Json::array();
  for (const std::string& problem : report.problems) problems.push_back(problem);
  for (const std::string& file : report.good_files) good.push_back(file);
  return Json::object({{"path", report.path},
                       {"step", report.step},
                       {"sound", report.sound()},
                       {"problems", problems},
                       {"good_files", good}});
}

void fsck(const std::string& path, bool json) {
  const auto reports = check_checkpoints(real_files(), path, available_threads());
  std::size_t damaged = 0;
  Json list = Json::array();
  for (const CheckpointReport& report : reports) {
    damaged += report.sound() ? 0 : 1;
    list.push_back(to_json(report));
    if (json) continue;
    std::printf("%s: %s\n", report.path.c_str(), report.sound() ? "sound" : "damaged");
    for (const std::string& problem : report.problems) std::printf("  %s\n", problem.c_str());
  }
  if (json) std::printf("%s\n", list.dump(2).c_str());
  if (damaged > 0) {
    throw Error(ErrorKind::data,
                format("{} of {} checkpoints below {} are damaged", damaged, reports.size(), path));
  }
}

}  // namespace

void add_ckpt_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("ckpt", "Look after checkpoints");
  verb->require_subcommand(1);
  struct Arguments {
    std::string path;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = verb->add_subcommand("fsck", "Compare every file and tensor with the manifest");
  command->add_option("path", arguments->path, "a checkpoint, or an output folder with several")->required();
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments] { fsck(arguments->path, arguments->json); });
}

}  // namespace lode
