#include "core/rehearsal.h"

namespace lode {
namespace {
thread_local bool rehearsing = false;
}  // namespace

Rehearsal::Rehearsal() : before_(rehearsing) {
  rehearsing = true;
}

Rehearsal::~Rehearsal() {
  rehearsing = before_;
}

bool Rehearsal::active() {
  return rehearsing;
}

}  // namespace lode
