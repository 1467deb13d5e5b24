// What every kernel gets and how kernels are found. A kernel takes (KernelContext&, views...), works on
// borrowed memory, allocates nothing but workspace, and gives bit-equal results for any number of threads
// (reductions run over fixed blocks).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "core/tensor.h"

namespace lode {

// Scratch memory, a stack: what a scope takes is free again when the scope ends. Regions come from the
// accounted pool and are kept, so after the first step nothing is allocated. Not thread-safe: take it before
// entering a parallel region.
class Workspace {
 public:
  explicit Workspace(Memory& memory) : memory_(&memory) {}

  class Scope {
   public:
    explicit Scope(Workspace& workspace)
        : workspace_(workspace), region_(workspace.region_), used_(workspace.used_) {}
    ~Scope() {
      workspace_.region_ = region_;
      workspace_.used_ = used_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    // Aligned to 64 bytes; contents undefined.
    std::byte* take(std::size_t bytes) { return workspace_.take(bytes); }
    template <class T>
    T* take(std::int64_t count) {
      return reinterpret_cast<T*>(take(static_cast<std::size_t>(count) * sizeof(T)));
    }

   private:
    Workspace& workspace_;
    std::size_t region_, used_;
  };

  // Gives back the regions, for work of another size is to follow. Nothing may be taken.
  void release();

 private:
  friend class Scope;
  std::byte* take(std::size_t bytes);

  Memory* memory_;
  std::vector<std::shared_ptr<Storage>> regions_;
  std::size_t region_ = 0, used_ = 0;  // the stack's top: bytes used of regions_[region_]
};

struct KernelContext {
  int threads = 1;
  Workspace* workspace = nullptr;
};

// A named kernel with one implementation per dtype of its main operand; an empty place throws "not
// implemented". Back-end files fill places with a static KernelEntry.
template <class Signature>
class KernelSlot;
template <class... Args>
class KernelSlot<void(Args...)> {
 public:
  using Function = void (*)(KernelContext&, Args...);
  constexpr explicit KernelSlot(const char* name) : name_(name) {}

  void operator()(DType dtype, KernelContext& context, Args... args) const {
    const Function function = functions_[static_cast<int>(dtype)];
    if (function == nullptr)
      fail(ErrorKind::internal, "{} is not implemented for cpu/{}", name_, name_of(dtype));
    function(context, args...);
  }
  void set(DType dtype, Function function) { functions_[static_cast<int>(dtype)] = function; }
  const char* name() const { return name_; }

 private:
  const char* name_;
  std::array<Function, kNumDTypes> functions_{};
};

template <class Slot>
struct KernelEntry {
  KernelEntry(Slot& slot, DType dtype, typename Slot::Function function) { slot.set(dtype, function); }
};

}  // namespace lode
