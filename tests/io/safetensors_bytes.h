// Builds safetensors files byte by byte, right or wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/file.h"

namespace lode {

inline std::string safetensors_bytes(std::string_view header, std::string_view data,
                                     std::uint64_t header_size) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &header_size, 8);
  out += header;
  return out += data;
}

inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return safetensors_bytes(header, data, header.size());
}

inline void write_bytes(const std::string& path, std::string_view bytes) {
  const auto file = real_files().create(path);
  file->write(bytes);
  file->close();
}

}  // namespace lode
