#include "io/gguf_types.h"

#include <algorithm>

namespace lode {
namespace {

constexpr GgufBlock read(std::uint32_t type, std::string_view name, QuantFormat format) {
  return {type, name, block_values(format), block_bytes(format), format};
}

constexpr GgufBlock kBlocks[] = {
    read(0, "F32", QuantFormat::f32),
    read(1, "F16", QuantFormat::f16),
    read(2, "Q4_0", QuantFormat::q4_0),
    read(3, "Q4_1", QuantFormat::q4_1),
    read(6, "Q5_0", QuantFormat::q5_0),
    read(7, "Q5_1", QuantFormat::q5_1),
    read(8, "Q8_0", QuantFormat::q8_0),
    {9, "Q8_1", 32, 36, {}},
    read(10, "Q2_K", QuantFormat::q2_k),
    read(11, "Q3_K", QuantFormat::q3_k),
    read(12, "Q4_K", QuantFormat::q4_k),
    read(13, "Q5_K", QuantFormat::q5_k),
    read(14, "Q6_K", QuantFormat::q6_k),
    {15, "Q8_K", 256, 292, {}},
    {16, "IQ2_XXS", 256, 66, {}},
    {17, "IQ2_XS", 256, 74, {}},
    {18, "IQ3_XXS", 256, 98, {}},
    {19, "IQ1_S", 256, 50, {}},
    read(20, "IQ4_NL", QuantFormat::iq4_nl),
    {21, "IQ3_S", 256, 110, {}},
    {22, "IQ2_S", 256, 82, {}},
    {23, "IQ4_XS", 256, 136, {}},
    {24, "I8", 1, 1, {}},
    {25, "I16", 1, 2, {}},
    {26, "I32", 1, 4, {}},
    {27, "I64", 1, 8, {}},
    {28, "F64", 1, 8, {}},
    {29, "IQ1_M", 256, 56, {}},
    read(30, "BF16", QuantFormat::bf16),
    {34, "TQ1_0", 256, 54, {}},
    {35, "TQ2_0", 256, 66, {}},
    {39, "MXFP4", 32, 17, {}},
};

}  // namespace

const GgufBlock* find_gguf_block(std::uint32_t type) {
  const auto* found = std::ranges::find(kBlocks, type, &GgufBlock::type);
  return found == std::end(kBlocks) ? nullptr : found;
}

const GgufBlock* find_gguf_block(QuantFormat format) {
  const auto* found = std::ranges::find(kBlocks, std::optional(format), &GgufBlock::format);
  return found == std::end(kBlocks) ? nullptr : found;
}

std::uint32_t gguf_file_type(QuantFormat format) {
  switch (format) {
    case QuantFormat::f32:
      return 0;
    case QuantFormat::f16:
      return 1;
    case QuantFormat::q4_0:
      return 2;
    case QuantFormat::q4_1:
      return 3;
    case QuantFormat::q8_0:
      return 7;
    case QuantFormat::q5_0:
      return 8;
    case QuantFormat::q5_1:
      return 9;
    case QuantFormat::q2_k:
      return 10;
    case QuantFormat::q3_k:
      return 12;
    case QuantFormat::q4_k:
      return 15;
    case QuantFormat::q5_k:
      return 17;
    case QuantFormat::q6_k:
      return 18;
    case QuantFormat::iq4_nl:
      return 25;
    case QuantFormat::bf16:
      return 32;
    case QuantFormat::nf4:
    case QuantFormat::int8:
      break;
  }
  return 1024;  // "guessed"
}

}  // namespace lode
