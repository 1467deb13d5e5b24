// Raising errors with a formatted message, and assertions for our own bugs.
#pragma once

#include "core/format.h"
#include "lode/error.h"

namespace lode {

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, std::string_view pattern, const Args&... args) {
  throw Error(kind, format(pattern, args...));
}

[[noreturn]] void fail_assertion(const char* condition, const char* file, int line);

}  // namespace lode

// Active in every build: a violated assumption of ours is reported as an internal error, never computed with.
#define LODE_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::lode::fail_assertion(#condition, __FILE__, __LINE__))
