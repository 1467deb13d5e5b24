// Builds GGUF files byte by byte, right or wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lode {

template <class T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
inline std::string raw_text(std::string_view text) {
  return raw<std::uint64_t>(text.size()) + std::string(text);
}

struct GgufBytes {
  std::uint32_t version = 3;
  std::vector<std::string> fields;   // each key, type and value
  std::vector<std::string> tensors;  // each info
  std::string data;
  std::uint64_t alignment = 32;
  std::int64_t extra_fields = 0, extra_tensors = 0;  // declared only

  GgufBytes& field(std::string_view key, std::uint32_t type, std::string_view value) {
    fields.push_back(raw_text(key) + raw(type) + std::string(value));
    return *this;
  }
  GgufBytes& text(std::string_view key, std::string_view value) { return field(key, 8, raw_text(value)); }
  GgufBytes& u32(std::string_view key, std::uint32_t value) { return field(key, 4, raw(value)); }
  GgufBytes& info(std::string_view name, const std::vector<std::int64_t>& dims, std::uint32_t type,
                  std::uint64_t offset) {
    std::string out = raw_text(name) + raw<std::uint32_t>(static_cast<std::uint32_t>(dims.size()));
    for (const std::int64_t n : dims) out += raw(n);
    tensors.push_back(out + raw(type) + raw(offset));
    return *this;
  }
  std::string bytes() const {
    std::string out = "GGUF" + raw(version) + raw(static_cast<std::int64_t>(tensors.size()) + extra_tensors) +
                      raw(static_cast<std::int64_t>(fields.size()) + extra_fields);
    for (const std::string& f : fields) out += f;
    for (const std::string& t : tensors) out += t;
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data;
  }
};

}  // namespace lode
