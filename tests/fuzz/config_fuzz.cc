#include "memory_file.h"
#include "models/family.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lode::read_or_refuse([&] {
    lode::MemoryFile files("config.json", data, size);
    lode::read_model_config(files, "config.json");
  });
}
