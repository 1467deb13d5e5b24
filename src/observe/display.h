// Small helpers for text that people read: valid UTF-8, short numbers, aligned tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"

namespace lode {

// Every byte that is no part of valid UTF-8 becomes U+FFFD.
std::string repair_utf8(std::string_view text);

// Code points; every one is taken to be a column wide. `text` is valid UTF-8.
std::size_t display_width(std::string_view text);

std::string short_count(double value);  // "950", "12.3k", "10.1M", "2.4B"; "?" when unknown

// A JSON value as one line for people: strings bare, numbers shortest, the rest as JSON.
std::string plain_text(const Json& value);
std::string plain_key(std::string_view key);  // '_' shown as a space

// Two columns, aligned, each line indented by two spaces; cells are repaired and their line breaks shown as
// spaces.
std::string two_columns(const std::vector<std::pair<std::string, std::string>>& rows);
std::string columns(const std::vector<std::vector<std::string>>& rows);  // any number; the last is not padded

}  // namespace lode
