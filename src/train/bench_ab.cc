#include "train/bench_ab.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/fail.h"
#include "train/ab_toggles.h"
#include "train/recipe.h"

extern char** environ;

namespace lode {
namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? std::nan("") : values[values.size() / 2];
}

struct Run {
  double tokens_per_second = 0, peak_memory = 0, loss = 0;
  Json facts;
  std::string problem;
};

// Runs the binary with its output in a file; its exit code.
int run_process(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t id = 0;
  const int failure = posix_spawn(&id, words.front().c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) fail(ErrorKind::internal, "{} could not be started: {}", words.front(), failure);
  int status = 0;
  while (waitpid(id, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of(" \n");
  if (end == std::string::npos) return "";
  const auto newline = text.rfind('\n', end);
  const auto begin = newline == std::string::npos ? 0 : newline + 1;
  return text.substr(begin, end + 1 - begin);
}

// The recipe of a side of a comparison, as its run has it.
std::vector<std::string> recipe_of_side(std::vector<std::string> words,
                                        const std::vector<std::string>& overrides, const std::string& folder,
                                        std::int64_t steps) {
  words.insert(words.end(), overrides.begin(), overrides.end());
  for (const std::string& word :
       {format("max_steps={}", steps), format("output_dir={}", folder), std::string("logging_steps=1"),
        std::string("save_strategy=no"), std::string("eval_strategy=no"), std::string("report_to=none"),
        std::string("load_best_model_at_end=false"), std::string("resume_from_checkpoint=false"),
        std::string("overwrite_output_dir=true"), std::string("disable_tqdm=true")})
    words.push_back(word);
  return words;
}

Run train_once(FileSystem& files, const std::string& binary, std::vector<std::string> words,
               const std::string& folder) {
  words.insert(words.begin(), {binary, "train"});
  const std::string log = folder + ".log";
  Run run;
  if (run_process(words, log) != 0) {
    run.problem = last_line(files.read(log));
    return run;
  }
  std::vector<double> rates;
  std::istringstream lines(files.read(join_path(folder, "metrics.jsonl")));
  std::string line;
  for (std::int64_t i = 0; std::getline(lines, line); ++i) {
    const Json record = parse_json(line, "metrics.jsonl");
    const Json* loss = record.find("loss");
    if (loss == nullptr || !loss->is_number()) continue;
    run.loss = loss->as_double();
    if (i > 0) rates.push_back(record.at("time_tokens_per_second").as_double());
  }
  const Json record = parse_json(files.read(join_path(folder, "run.json")), "run.json");
  run.tokens_per_second = median(rates);
  run.peak_memory = record.at("process").at("peak_resident_bytes").as_double();
  run.facts = record.at("optimisations");
  return run;
}

// With "@" as the folder that it stands for.
std::vector<std::string> placed(std::vector<std::string> overrides, const std::string& folder) {
  for (std::string& text : overrides) {
    if (const auto at = text.find('@'); at != std::string::npos) text.replace(at, 1, folder);
  }
  return overrides;
}

// Why a side of a comparison is no recipe, on one line; "" when it is.
std::string refusal(FileSystem& files, const std::vector<std::string>& recipe) {
  std::string line;
  try {
    recipe_from_arguments(files, recipe);
  } catch (const Error& error) {
    for (const char c : std::string_view(error.what())) {
      if (c != '\n' && (c != ' ' || !line.ends_with(' '))) line += c;
      if (c == '\n' && !line.ends_with(' ')) line += ' ';
    }
  }
  return line;
}

std::string fact_of(const Json& facts, std::string_view name) {
  if (name.empty()) return "";
  for (const Json& fact : facts.as_array()) {
    if (fact.at("name").as_string() == name)
      return format("{} / {}: {}", fact.at("asked").as_string(), fact.at("chosen").as_string(),
                    fact.at("why").as_string());
  }
  return "";
}

void add(AbSide& side, const Run& run) {
  side.tokens_per_second.push_back(run.tokens_per_second);
  side.peak_memory.push_back(run.peak_memory);
  side.loss = run.loss;
}

std::vector<double> ratios(const AbResult& result) {
  std::vector<double> out;
  for (std::size_t i = 0; i < result.on.tokens_per_second.size(); ++i)
    out.push_back(result.on.tokens_per_second[i] / result.off.tokens_per_second[i]);
  return out;
}

}  // namespace

double AbResult::speed() const {
  return median(ratios(*this));
}
double AbResult::slowest() const {
  return std::ranges::min(ratios(*this));
}
double AbResult::fastest() const {
  return std::ranges::max(ratios(*this));
}
double AbResult::memory() const {
  return median(on.peak_memory) / median(off.peak_memory);
}
double AbResult::loss_difference() const {
  return on.loss - off.loss;
}

Json AbResult::to_json() const {
  Json json = Json::object({{"name", name}});
  if (!problem.empty()) {
    json["not_compared"] = problem;
    return json;
  }
  json["tokens_per_second_ratio"] = speed();
  json["tokens_per_second_ratio_range"] = Json::Array{slowest(), fastest()};
  json["peak_memory_ratio"] = memory();
  json["loss_off"] = off.loss;
  json["loss_on"] = on.loss;
  json["fact"] = fact;
  return json;
}

std::vector<AbResult> bench_ab(FileSystem& files, const std::string& binary,
                               const std::vector<std::string>& recipe, const AbOptions& options) {
  const Recipe base = recipe_from_arguments(files, recipe);  // its problems are said before anything runs
  if (base.per_device_train_batch_size == Recipe::kAutoBatch) {
    fail(ErrorKind::usage,
         "bench ab: per_device_train_batch_size is auto, which each side would choose for itself: give a "
         "number");
  }
  std::string known;
  for (const Toggle& toggle : ab_toggles())
    known += format("{}\"{}\"", known.empty() ? "" : ", ", toggle.name);
  for (const std::string& name : options.only) {
    if (std::ranges::none_of(ab_toggles(), [&](const Toggle& toggle) { return toggle.name == name; }))
      fail(ErrorKind::usage, "bench ab: there is no \"{}\"; there are {}", name, known);
  }
  const std::string folder = base.output_dir + ".ab", scratch = base.output_dir + ".ab-files";
  files.make_directory(scratch);
  std::vector<AbResult> results;
  for (const Toggle& toggle : ab_toggles()) {
    if (!options.only.empty() && std::ranges::find(options.only, toggle.name) == options.only.end()) continue;
    AbResult result{.name = toggle.name};
    result.off.overrides = placed(toggle.off, scratch);
    result.on.overrides = placed(toggle.on, scratch);
    const auto off_recipe = recipe_of_side(recipe, result.off.overrides, folder, options.steps);
    const auto on_recipe = recipe_of_side(recipe, result.on.overrides, folder, options.steps);
    for (const auto* side : {&on_recipe, &off_recipe}) {
      if (result.problem.empty()) result.problem = refusal(files, *side);
    }
    for (std::int64_t round = 0; round < options.rounds && result.problem.empty(); ++round) {
      const Run off = train_once(files, binary, off_recipe, folder);
      const Run on = off.problem.empty() ? train_once(files, binary, on_recipe, folder) : Run();
      result.problem = off.problem.empty() ? on.problem : off.problem;
      if (!result.problem.empty()) break;
      add(result.off, off);
      add(result.on, on);
      result.fact = fact_of(on.facts, toggle.fact);
    }
    results.push_back(std::move(result));
  }
  files.remove(scratch);
  files.remove(folder);
  files.remove(folder + ".log");
  return results;
}

std::string ab_table(const std::vector<AbResult>& results) {
  std::string out =
      format("{:<24} {:>8} {:>15} {:>8}  {}\n", "optimisation", "speed", "range", "memory", "loss");
  for (const AbResult& r : results) {
    if (!r.problem.empty()) {
      out += format("{:<24} not compared: {}\n", r.name, r.problem);
      continue;
    }
    const std::string loss =
        r.loss_difference() == 0 ? "identical" : format("{:+.2g} of {:.4f}", r.loss_difference(), r.off.loss);
    out += format("{:<24} {:>7.2f}x {:>6.2f} - {:>5.2f} {:>8.2f}x  {}{}\n", r.name, r.speed(), r.slowest(),
                  r.fastest(), r.memory(), loss, r.fact.empty() ? "" : "; " + r.fact);
  }
  return out;
}

}  // namespace lode
