// The element types of GGUF files by their numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/quantized.h"

namespace lode {

struct GgufBlock {
  std::uint32_t type;  // the file's number
  std::string_view name;
  std::int64_t values, bytes;
  std::optional<QuantFormat> format;  // nothing: known, so that files can be walked, but not read
};

const GgufBlock* find_gguf_block(std::uint32_t type);  // nullptr: unknown
const GgufBlock* find_gguf_block(QuantFormat format);  // nullptr: not in GGUF files (nf4, int8)
std::uint32_t gguf_file_type(QuantFormat format);      // general.file_type of a model mostly in it

}  // namespace lode
