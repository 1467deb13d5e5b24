// What a decoder's blocks keep of their forward for their backward. Every policy gives the same bits.
#pragma once

#include <cstdint>

#include "autograd/offload.h"

namespace lode {

struct ActivationPolicy {
  enum class Recompute {
    none,       // everything is kept
    selective,  // the results chosen below are made again, one by one
    full,       // of a recomputed block its input is kept, the rest is made again by running it once more
  };
  Recompute recompute = Recompute::none;
  std::int64_t every = 1;  // full: blocks 0, every, 2 every, ... are recomputed, the others kept
  // selective: results of norms, of the MLP's activation, of attention
  bool norms = true, mlp = true, attention = false;
  // Where inputs of recomputed blocks wait (full), or all that blocks' ops save (else); null: in memory.
  Offload* offload = nullptr;
};

}  // namespace lode
