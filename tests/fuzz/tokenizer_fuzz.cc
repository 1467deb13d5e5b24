#include "text/tokenizer.h"

#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lode::read_or_refuse([&] {
    lode::MemoryFile files("tokenizer.json", data, size);
    const lode::Tokenizer tokenizer = lode::Tokenizer::load(files, "tokenizer.json");
    const auto ids = tokenizer.encode("It's 3 o'clock,\t\xe4\xbd\xa0\xe5\xa5\xbd \xff<s>\n\n");
    tokenizer.decode(ids);
  });
}
