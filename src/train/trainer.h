// Training: from a recipe to a folder of checkpoints.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/profile.h"
#include "io/checkpoint_writer.h"
#include "observe/metrics.h"
#include "observe/progress.h"
#include "observe/run_record.h"
#include "observe/tensorboard.h"
#include "optim/schedule.h"
#include "train/activation_setup.h"
#include "train/data_setup.h"
#include "train/memory_plan.h"
#include "train/model_setup.h"
#include "train/run_folder.h"
#include "train/run_state.h"
#include "train/step.h"

namespace lode {

struct TrainOutcome {
  std::string result;  // folder of the final model (the best one when load_best_model_at_end)
  std::int64_t step = 0;
  bool already_finished = false;  // a resumed run that had nothing left to do
};

class Trainer {
 public:
  // Reads everything and allocates the model; nothing is trained. Throws as its parts do, before anything is
  // written to the output folder but its log.
  Trainer(FileSystem& files, const Recipe& recipe, std::vector<std::string> command_line, Log& log);
  ~Trainer();

  // Trains to the end. Throws Error(preempted) after a signal, once a checkpoint is saved; Error(diverged)
  // after max_bad_steps bad steps in a row; Error(data) when a checkpoint cannot be written.
  TrainOutcome run();

  Decoder& decoder() { return *decoder_; }
  const RunState& state() const { return state_; }

 private:
  // trainer.cc: the loop
  void train_steps();
  void train_one(const Step& step);
  bool keeps_in_range(StepResult& result);
  void handle_bad_step(const Step& step, const StepResult& result);
  void log_step();
  void write_trace();
  void measure_peak();
  bool due(Recipe::When when, std::int64_t every) const;
  bool finished() const;
  // trainer_start.cc
  void read_parts();
  void make_state();
  void choose_batch();
  void plan_run();
  void make_model();
  void show_coverage() const;
  void scan_weights();
  void load_optimizer();
  void open_records();
  RunInfo run_info();
  void make_updater();
  // trainer_save.cc
  bool evaluate_sets();  // true: the best so far
  void write_samples();
  void save();
  void finish_save(bool wait);
  std::string result() const;
  void add_state(std::size_t parameter, std::vector<SavedTensor>& tensors);
  CheckpointContents checkpoint_contents();
  TrainOutcome finish();
  void write_end(int exit_status, const std::string& reason);

  FileSystem& files_;
  Recipe recipe_;
  std::vector<std::string> command_line_;
  Log& log_;
  std::size_t memory_limit_;  // of the process, as it was at the start; 0: none
  Engine engine_;
  MemoryUse load_use_;  // peaks until the model was there; those of engine_ begin behind them
  std::optional<RunFolder> folder_;
  std::optional<ModelParts> parts_;
  std::string model_path_;   // a hub id resolved
  Activations activations_;  // before the decoder, whose tapes refer to it
  MemoryPlan plan_;
  std::unique_ptr<GraphCapture> capture_;
  std::unique_ptr<Decoder> decoder_;
  DataSets data_;
  std::unique_ptr<StepLoader> loader_;  // null when streaming
  std::unique_ptr<ParameterUpdater> updater_;
  Schedule schedule_;
  std::int64_t steps_per_epoch_ = 0, total_steps_ = 0;  // an epoch's are unknown, 0, when streaming
  RunState state_;
  std::optional<FoundCheckpoint> resumed_;

  std::unique_ptr<CheckpointWriter> writer_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<RunRecord> record_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Profile> profile_;  // while the steps of profile_steps run
  RunInfo info_;
  CoreMeter cores_;
  std::chrono::steady_clock::time_point started_;
  double train_seconds_ = 0;
  double process_flops_ = 0, process_recomputed_flops_ = 0;
  double next_peak_ = 1;  // training seconds after which the peak is measured: short runs go without
  std::int64_t process_tokens_ = 0, process_samples_ = 0;
  struct Window {  // of this process since its last logging step
    double seconds = 0, flops = 0, wait = 0;
    std::int64_t steps = 0, tokens = 0, samples = 0;
  };
  Window window_;
  std::int64_t saved_step_ = -1;
  bool stopped_early_ = false;
  Json results_;
};

// The run of `lode train`.
TrainOutcome train(FileSystem& files, const Recipe& recipe, const std::vector<std::string>& command_line,
                   Log& log);

}  // namespace lode
