#include "models/gguf_config.h"

#include "memory_file.h"
#include "models/family.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lode::MemoryFile files("m.gguf", data, size);
  lode::read_or_refuse([&] {
    const lode::GgufFile file(files, "m.gguf");
    unsigned sum = 0;
    for (const lode::GgufTensor& tensor : file.tensors()) {
      for (const std::byte b : tensor.bytes) sum += static_cast<unsigned>(b);
      tensor.type_name();
    }
    for (const lode::GgufField& field : file.fields()) lode::GgufFile::shown(field);
    if (sum == 1) file.find("x");
  });
  return lode::read_or_refuse([&] { lode::read_model_config(files, "m.gguf"); });
}
