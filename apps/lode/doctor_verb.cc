#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "core/file.h"
#include "kernels/matmul.h"
#include "observe/doctor.h"
#include "observe/run_record.h"
#include "verbs.h"

namespace lode {
namespace {

struct DoctorArguments {
  std::string path = ".";
  bool json = false;
};

void examine(const DoctorArguments& arguments) {
  DoctorOptions options;
  options.path = arguments.path;
  options.libraries = {{"lode", build_info().version},
                       {"compiler", build_info().compiler},
                       {"matmul", matmul_library_version()}};
  const DoctorReport report = run_doctor(real_files(), options);
  const std::string text = arguments.json ? report.to_json().dump(2) + "\n" : report.to_text();
  std::fputs(text.c_str(), stdout);
}

}  // namespace

void add_doctor_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "doctor", "Look at the machine: what training can use, what is lacking, what it costs");
  const auto arguments = std::make_shared<DoctorArguments>();
  verb->add_option("--path", arguments->path, "folder whose disk is measured")->capture_default_str();
  verb->add_flag("--json", arguments->json, "print JSON");
  verb->callback([arguments] { examine(*arguments); });
}

}  // namespace lode
