// Parallel loops on one pool of threads (OpenMP's, which oneDNN shares; std::thread under the thread
// sanitizer). The first exception of a body is rethrown on the calling thread after all have finished. Calls
// inside a body run inline.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>

namespace lode {

// A borrowed callable: valid during the call it is passed to.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>) FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(static_cast<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, static_cast<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// Cores that this process may use (affinity and container limits), at least 1. OMP_NUM_THREADS caps it.
int available_threads();

// Splits [0, n) into at most `threads` contiguous ranges of at least `grain`; body(begin, end).
void parallel_for(int threads, std::int64_t n, std::int64_t grain,
                  FunctionRef<void(std::int64_t, std::int64_t)> body);

// Runs body(task, thread) for task in [0, n), handed out one by one in order; thread < threads.
void parallel_tasks(int threads, std::int64_t n, FunctionRef<void(std::int64_t, int)> body);

}  // namespace lode
