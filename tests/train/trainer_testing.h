// Tiny whole runs: a folder with a generated text, its tokenizer and two models, and what a run left there.
#pragma once

#include <string>
#include <vector>

#include "temp_folder.h"
#include "train/trainer.h"

namespace lode {

using Overrides = std::vector<std::string>;

// What must be equal when two runs are the same run.
struct RunTrace {
  std::vector<std::string> metrics;  // lines without their time_* fields
  std::string tensors;               // hashes of every tensor of the last checkpoint, optimizer included
  std::string state;                 // of the last checkpoint, without the recipe
  friend bool operator==(const RunTrace&, const RunTrace&) = default;
};

class TinyRun {
 public:
  TinyRun();  // text.txt (about 120 short documents), eval.txt, tok/, llama.json, gpt2.json; LODE_CACHE
              // inside

  const std::string& path() const { return folder_.path(); }
  std::string operator/(std::string_view name) const { return folder_ / name; }

  // Defaults of the tests, then `overrides`, the last of a key counting: 20 steps of 4 rows of 32 tokens,
  // llama.json, f32, one thread, into out/.
  // "@" stands for path().
  Overrides arguments(const Overrides& overrides) const;
  Recipe recipe(const Overrides& overrides) const { return recipe_from_overrides(arguments(overrides)); }
  TrainOutcome train(const Overrides& overrides, FileSystem& files = real_files()) const;
  std::string error(const Overrides& overrides) const {
    return error_of([&] { train(overrides); });
  }
  std::string log(const std::string& output = "out") const;  // of all runs into it so far

 private:
  TempFolder folder_;
};

RunTrace trace_of(const std::string& output_dir);
std::string newest_checkpoint(const std::string& output_dir);
std::vector<Json> metrics_of(const std::string& output_dir);
// Every number of the file's tensors, in the order of their names.
std::vector<float> numbers_of(const std::string& safetensors);
double largest_difference(const std::vector<float>& a, const std::vector<float>& b);
void copy_tree(const std::string& from, const std::string& to);

// The lode binary in a process of its own.
class LodeProcess {
 public:
  // file_limit: no file may grow beyond so many bytes; 0: no limit. Its output goes to `folder`/process.txt.
  LodeProcess(const TinyRun& run, const Overrides& overrides, std::uint64_t file_limit = 0);
  ~LodeProcess();
  LodeProcess(const LodeProcess&) = delete;
  LodeProcess& operator=(const LodeProcess&) = delete;

  int id() const { return id_; }
  bool running();
  void kill(int signal) const;
  int wait();  // exit code; -signal when a signal ended it
  std::string output() const { return real_files().read(output_); }

 private:
  std::string output_;
  int id_ = -1, status_ = 0;
  bool done_ = false;
};

bool lode_binary_is_built();
// Waits until metrics.jsonl of the run has a line of `step` or a later one; false after `seconds`.
bool wait_for_step(LodeProcess& process, const std::string& output_dir, std::int64_t step,
                   double seconds = 60);

}  // namespace lode
