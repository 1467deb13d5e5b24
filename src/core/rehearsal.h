// A step without arithmetic: it takes the memory that it would take and touches next to none of it, so that
// what a run needs is known before it holds anything.
#pragma once

namespace lode {

// While one lives, parallel loops that this thread starts run nothing, and products compute nothing. Results
// are undefined (memory fresh from the system reads as zero).
class Rehearsal {
 public:
  Rehearsal();
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  static bool active();  // on this thread

 private:
  bool before_;
};

}  // namespace lode
