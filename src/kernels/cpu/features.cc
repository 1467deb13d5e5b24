#include "kernels/cpu/features.h"

#include <algorithm>
#include <cstdlib>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/features.cc"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace lode {
namespace HWY_NAMESPACE {
namespace {

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lode {

HWY_EXPORT(target_name);

namespace {

std::string chosen_target() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

// Bits of the compiled targets that the machine supports, best (lowest) first, whatever is forced.
std::vector<std::int64_t> supported_bits() {
  static const std::vector<std::int64_t> bits = hwy::SupportedAndGeneratedTargets();
  return bits;
}

std::string what_is_missing(std::string_view best) {
  if (best == "AVX3") return {};
  if (best == "AVX2") {
    return "no AVX-512 (F, BW, CD, DQ, VL): SIMD kernels work on 8 numbers at a time instead of 16, and "
           "matrix products "
           "have no bf16 instructions";
  }
  return "no AVX2 with FMA: SIMD kernels run the portable code, several times slower";
}

// LODE_SIMD is read before the first kernel runs; a bad name is reported by cpu_path.
const bool environment_read = [] {
  supported_bits();
  const char* name = std::getenv("LODE_SIMD");
  if (name == nullptr) return false;
  for (const std::string& target : available_simd_targets()) {
    if (target == name) force_simd_target(target);
  }
  return true;
}();

}  // namespace

bool rounds_to_bf16() {
#if HWY_ARCH_X86
  static const bool does = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") != 0;
  }();
  return does;
#else
  return false;
#endif
}

std::vector<std::string> available_simd_targets() {
  std::vector<std::string> names;
  for (const std::int64_t bit : supported_bits()) names.emplace_back(hwy::TargetName(bit));
  return names;
}

void force_simd_target(std::string_view target) {
  std::int64_t allowed = 0;
  for (const std::int64_t bit : supported_bits()) {
    if (target == hwy::TargetName(bit)) allowed = bit;
  }
  if (allowed == 0 && !target.empty()) {
    fail(ErrorKind::usage, "SIMD target {} is not available on this machine; available: {}", target, [] {
      std::string list;
      for (const std::string& name : available_simd_targets()) list += (list.empty() ? "" : ", ") + name;
      return list;
    }());
  }
  hwy::SetSupportedTargetsForTest(allowed);
}

CpuPath cpu_path() {
  const std::vector<std::string> targets = available_simd_targets();
  if (const char* name = std::getenv("LODE_SIMD"); environment_read && name != nullptr) {
    if (std::find(targets.begin(), targets.end(), name) == targets.end()) force_simd_target(name);
  }
  CpuPath path;
  path.target = chosen_target();
  path.missing = what_is_missing(targets.front());
  path.forced = path.target != targets.front();
  return path;
}

}  // namespace lode
#endif  // HWY_ONCE
