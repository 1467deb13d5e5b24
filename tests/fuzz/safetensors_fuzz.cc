#include "io/safetensors.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lode::read_or_refuse([&] {
    lode::MemoryFile files("m.safetensors", data, size);
    const lode::SafetensorsFile file(files, "m.safetensors");
    unsigned sum = 0;
    for (const lode::TensorInfo& tensor : file.tensors()) {
      for (const std::byte b : file.bytes(tensor)) sum += static_cast<unsigned>(b);
      lode::shape_text(tensor.shape);
    }
    if (sum == 1) file.find("x");
  });
}
