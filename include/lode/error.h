// The one exception type of the library, and the exit codes that the command line makes of it.
#pragma once

#include <stdexcept>
#include <string>

#include "lode/export.h"

namespace lode {

enum class ErrorKind {
  internal,       // our bug
  usage,          // command line or recipe
  data,           // a file: missing, damaged, of the wrong shape, not writable
  memory,         // does not fit
  diverged,       // too many bad steps in a row
  communication,  // ranks or collectives
  preempted,      // stopped by a signal after a checkpoint was saved: run again
};

class LODE_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Process exit code of a kind: internal 1, usage 2, data 3, memory 4, diverged 5, communication 6,
// preempted 75.
LODE_API int exit_code(ErrorKind kind);

}  // namespace lode
