#include "lode/error.h"

#include "core/fail.h"

namespace lode {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::internal:
      return 1;
    case ErrorKind::usage:
      return 2;
    case ErrorKind::data:
      return 3;
    case ErrorKind::memory:
      return 4;
    case ErrorKind::diverged:
      return 5;
    case ErrorKind::communication:
      return 6;
    case ErrorKind::preempted:
      return 75;
  }
  return 1;
}

void fail_assertion(const char* condition, const char* file, int line) {
  fail(ErrorKind::internal, "assertion failed: {} ({}:{}); please report this", condition, file, line);
}

}  // namespace lode
