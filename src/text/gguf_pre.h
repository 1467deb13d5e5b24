// GGUF's names for pre-tokenizers of byte-level models.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/json.h"

namespace lode::text {

struct GgufPre {
  std::string_view name;
  bool ignore_merges, add_bos, nfc;
  Json (*pre_tokenizer)();
};

std::span<const GgufPre> gguf_pres();
// "" and "default" have an entry; null for an unknown name.
const GgufPre* find_gguf_pre(std::string_view name);

}  // namespace lode::text
