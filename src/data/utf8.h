// Checking that text is UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace lode {

// Position of the first byte that does not belong to well-formed UTF-8 (no surrogates, no overlong forms).
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

}  // namespace lode
