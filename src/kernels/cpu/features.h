// Which instruction set the SIMD kernels run with on this machine, and what the machine lacks: for facts and
// `lode doctor`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lode {

struct CpuPath {
  std::string
      target;  // "AVX3" (AVX-512 F, BW, CD, DQ, VL), "AVX2" (with FMA and BMI2) or the baseline's name
  std::string missing;  // what the machine lacks and what that costs; empty when nothing is lacking
  bool forced = false;  // a better target exists but LODE_SIMD or force_simd_target took this one
};
CpuPath cpu_path();

// The processor converts f32 to bf16 itself, rounding to nearest even (AVX512-BF16).
bool rounds_to_bf16();

// The targets this machine can run, best first.
std::vector<std::string> available_simd_targets();

// Makes all later kernel calls use the best target up to this one; "" returns to the best. Not to be called
// while kernels run. The environment variable LODE_SIMD (a target's name) does the same at start. An
// unavailable name throws Error(usage).
void force_simd_target(std::string_view target);

}  // namespace lode
