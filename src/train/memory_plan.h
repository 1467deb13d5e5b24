// What a run will hold, known before anything is held: its largest step is rehearsed, with all the memory and
// none of the arithmetic, so the table is the allocator's own.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "autograd/profile.h"
#include "data/loader.h"
#include "train/data_setup.h"
#include "train/model_setup.h"

namespace lode {

// The largest micro-batch that a run can meet.
struct LargestBatch {
  std::int64_t tokens = 0;  // padding included
  std::int64_t samples = 0;
  std::int64_t longest = 0;  // tokens of its longest sample
};

// The most that is held at once in each part of a run, bytes, `program` not included.
struct MemoryPhases {
  std::size_t load = 0;  // making the model and reading its weights, what is mapped of their files included
  std::size_t step = 0;
  std::size_t evaluation = 0;  // 0: the run has none
  std::size_t samples = 0;     // of generate_prompts; 0: the run has none
  std::size_t save = 0;        // a step while a checkpoint is written
  std::string load_problem;    // why the weights could not be looked at; load is then the room for them alone

  std::size_t largest() const { return std::max({load, step, evaluation, samples, save}); }
};

struct MemoryPlan {
  // Resident beside the allocator's memory in the runs of benchmarks/memory.py: code and libraries, kernels
  // made at run time, stacks, the prepared data and the tokenizer.
  static constexpr std::size_t kProgram = std::size_t{42} << 20;
  // Of a limit, for what a program takes beyond its usual share: a large tokenizer, data prepared just
  // before.
  static constexpr std::size_t kRoom = std::size_t{32} << 20;
  MemoryUse use;  // peaks by tag, of all phases
  MemoryPhases phases;
  std::size_t program = 0;  // resident beside the tags: code, libraries, tokenizer, data
  LargestBatch largest;
  // Of a step of `micro_batches` such batches; bytes: of passes that stream memory.
  double step_flops = 0, step_bytes = 0;
  std::int64_t micro_batches = 0;

  // What a limit must allow.
  std::size_t peak() const { return phases.largest() + program + kRoom; }
  // What the process takes when nothing limits it: free blocks between those in use are kept for the next
  // step.
  std::size_t resident() const { return std::max(use.reserved_peak, phases.largest()) + program; }
  // Bytes by tag, then "program".
  std::vector<std::pair<std::string, std::uint64_t>> rows() const;
  Json to_json() const;
  std::vector<std::string> lines() const;  // the table
};

// The step that needs most: the rows with most tokens in one micro-batch; a second one when gradients are
// accumulated. Without rows (streams, or data that is not prepared) full rows of one sample each.
Step largest_step(const Recipe& recipe, const Rows* rows, std::int64_t vocabulary);
// The largest batch of the evaluations, nothing when there are none. Data that is not prepared is taken to
// fill it.
std::optional<Batch> largest_evaluation(const Recipe& recipe, const DataSets& data, std::int64_t vocabulary);

// `data` may be empty: not prepared. Throws as making the model and the optimizer does. Takes next to no
// memory itself.
MemoryPlan plan_memory(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                       const std::string& model_path, const DataSets& data);

// A change of the recipe that needs less, and what it costs.
struct MemoryFix {
  std::vector<std::string> changes;  // "optim=adamw_8bit", as on the command line
  std::size_t peak = 0;
  double slow_down = 1;  // predicted, of a step with the same samples
};

// Combinations of changes that keep what is learned nearly the same and fit the limit, the cheapest first, at
// most `count`; when none fits, the one that needs least.
std::vector<MemoryFix> find_memory_fixes(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                                         const std::string& model_path, const DataSets& data,
                                         std::size_t limit, std::size_t count = 5);

// The list as shown to users, with a line above it.
std::vector<std::string> fix_lines(const std::vector<MemoryFix>& fixes, std::size_t limit);

// Bytes that `memory_limit` allows: "6GiB", "80%" of the memory of machine or container, "auto": 95 % of what
// is available now; 0: no limit ("none"). Throws Error(usage) on anything else.
std::size_t memory_limit_bytes(const std::string& text);
// What of a process's limit is left for tensors; 0: no limit.
std::size_t tensor_limit(std::size_t process_limit);

// Throws Error(memory) with the table and the changes that help when the plan is above the limit.
void require_fits(FileSystem& files, const Recipe& recipe, const ModelParts& parts,
                  const std::string& model_path, const DataSets& data, const MemoryPlan& plan,
                  std::size_t limit);

}  // namespace lode
