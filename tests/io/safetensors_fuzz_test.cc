// Seeded mutations of valid files, aware of their structure: whatever comes out is read or refused with
// Error(data).
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/rng.h"
#include "io/weights.h"
#include "safetensors_bytes.h"
#include "temp_folder.h"

namespace lode {
namespace {

const std::string_view kPieces[] = {"{",         "}",
                                    "[",         "]",
                                    ",",         ":",
                                    "\"",        "0",
                                    "-1",        "1e9",
                                    "null",      "\"F4\"",
                                    "\"I64\"",   "\\u0000",
                                    "\\ud800",   "9223372036854775807",
                                    "[0,0]",     "\xff",
                                    "\"a\"",     "\"shape\"",
                                    "\"dtype\"", "\"data_offsets\"",
                                    " "};

std::string valid_header(Rng& rng) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::uint64_t at = 0;
  for (std::uint64_t i = 0, n = rng.below(5); i < n; ++i) {
    const std::uint64_t rows = rng.below(4), cols = rng.below(4);
    header += format(R"(,"t{}":{{"dtype":"F32","shape":[{},{}],"data_offsets":[{},{}]}})", i, rows, cols, at,
                     at + rows * cols * 4);
    at += rows * cols * 4;
  }
  return header + "}" + std::string(rng.below(4), ' ');
}

void mutate(std::string& text, Rng& rng) {
  const std::size_t at = rng.below(text.size() + 1);
  switch (rng.below(6)) {
    case 0:
      text.insert(at, kPieces[rng.below(std::size(kPieces))]);
      break;
    case 1:
      text.erase(at, rng.below(8));
      break;
    case 2:
      if (at < text.size()) text[at] = static_cast<char>(rng.next_u32());
      break;
    case 3:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << rng.below(8)));
      break;
    case 4:
      text.insert(at, text.substr(rng.below(text.size() + 1), rng.below(60)));
      break;    // repeats a part
    default: {  // changes a number
      const std::size_t digit = text.find_first_of("0123456789", at);
      if (digit == std::string::npos) break;
      text.replace(digit, 1, format("{}", rng.below(3) == 0 ? rng.below(UINT64_MAX) : rng.below(40)));
    }
  }
}

TEST(SafetensorsFuzz, MutatedFilesAreReadOrRefused) {
  const TempFolder folder;
  const std::string path = folder / "f.safetensors";
  Rng rng(20240607, "safetensors");
  int read = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string header = valid_header(rng);
    std::string data(rng.below(150), 'd');
    for (std::uint64_t k = 0, n = rng.below(4); k < n; ++k) mutate(header, rng);
    std::string bytes =
        rng.below(8) == 0 ? safetensors_bytes(header, data, rng.below(300)) : safetensors_bytes(header, data);
    write_bytes(path, bytes);
    if (const std::string message = error_of([&] { SafetensorsFile file(real_files(), path); });
        rng.below(3) != 0 && message.find("the file holds") != std::string::npos) {
      // The right amount of data, so that files with odd headers get past the last check.
      const std::size_t size = std::strtoull(message.c_str() + message.find("need ") + 5, nullptr, 10);
      if (size < 100'000) bytes = safetensors_bytes(header, std::string(size, 'd'));
    }
    if (rng.below(10) == 0) bytes.resize(rng.below(bytes.size() + 1));
    write_bytes(path, bytes);
    try {
      const SafetensorsFile file(real_files(), path);
      std::size_t sum = 0, total = 0;
      for (const TensorInfo& info : file.tensors()) {
        for (const std::byte b : file.bytes(info)) sum += static_cast<std::size_t>(b);
        total += file.bytes(info).size();
        shape_text(info.shape);
      }
      ASSERT_EQ(sum, total * 'd');
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::data) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, 200);
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace lode
