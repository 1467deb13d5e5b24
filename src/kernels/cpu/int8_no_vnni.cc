// In place of the parts for 8-bit dot products where the processor's family has none.
#include "kernels/cpu/int8_tiles.h"

namespace lode {

const Int8Tiles* vnni_int8_tiles() {
  return nullptr;
}

}  // namespace lode
