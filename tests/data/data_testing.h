// What the tests of the data layer share.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "data/prepare.h"
#include "lode/error.h"
#include "temp_folder.h"

namespace lode {

inline void put_file(const std::string& path, std::string_view text) {
  const auto file = real_files().create(path);
  file->write(text);
  file->close();
}

std::string gzip(std::string_view text);
std::string zstd(std::string_view text);

// The message of the Error(kind) that `action` must throw.
inline std::string error_of(ErrorKind kind, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

inline void expect_contains(std::string_view text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string_view::npos)
      << "\"" << text << "\" does not contain \"" << part << "\"";
}

// JSON text without the spaces behind colons and commas.
inline std::string compact(std::string text) {
  for (const std::string_view from : {"\": ", "\", \"", "}, {", "], ["}) {
    std::string to(from);
    std::erase(to, ' ');
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  }
  return text;
}

inline constexpr std::int32_t kByteEos = 256;

// A token a byte, 256 the end of a document; counts its calls.
struct ByteEncoder {
  std::atomic<std::int64_t> calls{0};

  TextEncoder get(bool independent_lines = false) {
    TextEncoder encoder;
    encoder.encode = [this](std::string_view text, std::vector<std::int32_t>& tokens) {
      ++calls;
      for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    };
    encoder.vocab_size = 257;
    encoder.eos_id = kByteEos;
    encoder.fingerprint = "bytes";
    encoder.independent_lines = independent_lines;
    return encoder;
  }
};

// The documents of prepared bytes, without their ends.
inline std::vector<std::string> documents_of(const PreparedData& data) {
  std::vector<std::string> documents;
  for (std::int64_t i = 0; i < data.num_documents(); ++i) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.length_of(i)));
    data.copy(data.begin_of(i), data.length_of(i), tokens.data());
    EXPECT_EQ(tokens.back(), kByteEos);
    tokens.pop_back();
    std::string& text = documents.emplace_back();
    for (const std::int32_t token : tokens) text += static_cast<char>(token);
  }
  return documents;
}

}  // namespace lode
