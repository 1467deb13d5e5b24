// Progress of a run: one redrawn line on a terminal, a plain line a logging step elsewhere. A closed terminal
// or a broken pipe is ignored (the application ignores SIGPIPE). Durations are on the monotonic clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/log.h"
#include "observe/metrics.h"

namespace lode {

struct ProgressFigures {
  std::int64_t step = 0, total = 0;  // total 0: unknown
  double loss = kUnknown, learning_rate = kUnknown, grad_norm = kUnknown;
  double tokens_per_second = kUnknown, samples_per_second = kUnknown, mfu = kUnknown, cores = kUnknown;
  std::uint64_t memory = 0;        // bytes resident
  double seconds_left = kUnknown;  // filled in by Progress
};

std::string format_duration(double seconds);  // "7s", "3m05s", "2h04m", "5d03h"; "?" when unknown

// At most `width` columns. Figures that do not fit are left out, the least important first.
std::string progress_bar(const ProgressFigures& f, int width, bool utf8);
std::string progress_line(const ProgressFigures& f);

struct ProgressOptions {
  int descriptor = 2;  // where the bar goes
  bool terminal = false;
  bool utf8 = false;
  int width = 0;  // columns; 0 = ask the terminal at each drawing
};
// From the environment: isatty, TERM, LC_ALL/LC_CTYPE/LANG.
ProgressOptions progress_options(int descriptor = 2);

class Progress {
 public:
  // Plain lines go through `log`, so that they stand in its file too.
  Progress(Log& log, std::int64_t start_step, std::int64_t total_steps,
           ProgressOptions options = progress_options());
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // After every step. `logging`: this is a logging step. Unknown figures keep their last value in the bar.
  void update(const ProgressFigures& figures, bool logging);
  void
  clear();  // takes the bar off the terminal, for lines written by others; the next update draws it again
  void exclude(double seconds);  // time since the last update that was no training (an evaluation, a save)
  double seconds_left() const;   // NaN before the second step

 private:
  void draw();

  Log& log_;
  ProgressOptions options_;
  ProgressFigures last_;
  std::chrono::steady_clock::time_point updated_, drawn_;
  double step_seconds_ = kUnknown;  // smoothed
  double excluded_ = 0;
  std::int64_t start_step_;
  bool visible_ = false;
};

}  // namespace lode
