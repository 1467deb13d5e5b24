// In place of the bf16 tile kernels where the processor's family has none.
#include "kernels/cpu/attention_tiles.h"

namespace lode {

const TileKernels* bf16_tiles() {
  return nullptr;
}

}  // namespace lode
