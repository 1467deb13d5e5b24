// Asking a run to stop: SIGTERM, SIGINT and SIGHUP let the current step finish; a second one ends the process
// at once.
#pragma once

namespace lode {

// Installs handlers for its lifetime and restores the former ones. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static bool requested();
  static const char* name();  // "SIGTERM", ...; "" when none came
};

}  // namespace lode
