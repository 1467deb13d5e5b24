#include <algorithm>
#include <array>
#include <cctype>

#include "observe/run_record.h"

namespace lode {
namespace {

constexpr std::string_view kMask = "***";

bool is_alnum(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

bool is_secret_word(std::string_view word) {
  static constexpr std::array<std::string_view, 4> kAnywhere = {"password", "passwd", "secret", "credential"};
  return word.ends_with("token") || word.ends_with("key") ||
         std::ranges::any_of(kAnywhere, [&](auto part) { return word.find(part) != std::string_view::npos; });
}

// Values that name their own kind: tokens of well-known services.
bool looks_secret(std::string_view value) {
  static constexpr std::array<std::string_view, 7> kStarts = {"hf_",    "sk-",   "ghp_", "github_pat_",
                                                              "glpat-", "xoxb-", "AKIA"};
  constexpr std::size_t kShortest = 20;
  return value.size() >= kShortest &&
         std::ranges::any_of(kStarts, [&](auto start) { return value.starts_with(start); }) &&
         std::ranges::all_of(value, [](char c) { return is_alnum(c) || c == '_' || c == '-'; });
}

// "https://user:word@host/path" -> "https://***@host/path".
std::string mask_addresses(std::string text) {
  std::size_t from = 0;
  for (std::size_t at; (at = text.find("://", from)) != std::string::npos; from = at + 3) {
    const std::size_t begin = at + 3;
    const std::size_t end = std::min(text.find_first_of("/?# \t\n\"'", begin), text.size());
    const std::size_t mark = text.rfind('@', end);
    if (mark != std::string::npos && mark >= begin && mark < end) text.replace(begin, mark - begin, kMask);
  }
  return text;
}

std::string mask_value(std::string_view value) {
  return looks_secret(value) ? std::string(kMask) : mask_addresses(std::string(value));
}

}  // namespace

bool is_secret_name(std::string_view name) {
  std::string word;
  for (const char c : name) {
    if (is_alnum(c)) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (is_secret_word(word)) return true;
    word.clear();
  }
  return is_secret_word(word);
}

std::vector<std::string> mask_secrets(const std::vector<std::string>& arguments) {
  std::vector<std::string> masked;
  bool secret_next = false;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    if (secret_next && !argument.starts_with("--")) {
      masked.emplace_back(kMask);
    } else if (equals == std::string::npos) {
      masked.push_back(mask_value(argument));
    } else {
      const std::string name = argument.substr(0, equals + 1);
      masked.push_back(name +
                       (is_secret_name(name) ? std::string(kMask) : mask_value(argument.substr(equals + 1))));
    }
    secret_next = argument.starts_with("--") && equals == std::string::npos && is_secret_name(argument);
  }
  return masked;
}

Json mask_secrets(const Json& value) {
  if (value.is_string()) return mask_value(value.as_string());
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value.as_array()) out.push_back(mask_secrets(item));
    return out;
  }
  if (!value.is_object()) return value;
  Json out = Json::object();
  for (const auto& [key, item] : value.as_object()) {
    // A number or a switch under such a name is none (tokens counted, a feature switched).
    const bool secret =
        is_secret_name(key) && (item.is_string() ? !item.as_string().empty() : item.size() > 0);
    out[key] = secret ? Json(kMask) : mask_secrets(item);
  }
  return out;
}

}  // namespace lode
