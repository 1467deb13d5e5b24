#include "data/byte_reader.h"

#include "core/rng.h"
#include "data_testing.h"

namespace lode {
namespace {

std::string read_all(const std::string& path, Compression compression, std::size_t piece) {
  const auto reader = open_bytes(real_files(), path, compression);
  std::string text, part(piece, '\0');
  for (;;) {
    const std::size_t n = reader->read(part.data(), piece);
    if (n == 0) break;
    text.append(part, 0, n);
  }
  EXPECT_EQ(reader->read(part.data(), piece), 0u);
  return text;
}

std::string noise(std::size_t size) {
  Rng rng(1, "noise");
  std::string text;
  while (text.size() < size) text += static_cast<char>(rng.below(11) * rng.below(11));
  return text;
}

class Compressed : public testing::TestWithParam<Compression> {
 protected:
  std::string pack(std::string_view text) const {
    return GetParam() == Compression::gzip ? gzip(text) : zstd(text);
  }
  std::string read(std::size_t piece = 1000) const { return read_all(path_, GetParam(), piece); }

  TempFolder folder_;
  std::string path_ = folder_ / "data.packed";
};

TEST_P(Compressed, GivesTheTextForAnyPieceSize) {
  const std::string text = noise(300000);
  put_file(path_, pack(text));
  for (const std::size_t piece : {1u << 20, 4096u, 1000u, 7u}) EXPECT_EQ(read(piece), text);
  put_file(path_, pack(""));
  EXPECT_EQ(read(), "");
}

TEST_P(Compressed, GivesAllMembers) {
  put_file(path_, pack("one ") + pack("") + pack("two ") + pack("three"));
  EXPECT_EQ(read(3), "one two three");
}

TEST_P(Compressed, RefusesEveryTruncation) {
  const std::string text = noise(5000), packed = pack("first") + pack(text);
  const std::size_t first = pack("first").size();
  for (std::size_t size = 0; size < packed.size(); size += size < 64 ? 1 : 97) {
    put_file(path_, packed.substr(0, size));
    if (size == first) {
      EXPECT_EQ(read(), "first");
      continue;
    }
    const std::string message = error_of(ErrorKind::data, [&] { read(64); });
    expect_contains(message, path_);
    if (size > 0) expect_contains(message, "truncated");
  }
}

TEST_P(Compressed, RefusesDamageAndOtherFiles) {
  std::string packed = pack(noise(5000));
  packed[packed.size() / 2] ^= 0x55;
  put_file(path_, packed);
  // Zstd's one-shot frames carry no checksum: damage may go unseen there, but never crashes.
  if (GetParam() == Compression::gzip) expect_contains(error_of(ErrorKind::data, [&] { read(); }), path_);
  put_file(path_, "plain text, whatever its name says");
  expect_contains(error_of(ErrorKind::data, [&] { read(); }), "damaged one");
}

INSTANTIATE_TEST_SUITE_P(All, Compressed, testing::Values(Compression::gzip, Compression::zstd));

TEST(GzipFile, MayBePaddedWithZerosOnly) {
  const TempFolder folder;
  put_file(folder / "a.gz", gzip("text") + std::string(512, '\0'));
  EXPECT_EQ(read_all(folder / "a.gz", Compression::gzip, 100), "text");
  put_file(folder / "a.gz", gzip("text") + "garbage");
  expect_contains(error_of(ErrorKind::data, [&] { read_all(folder / "a.gz", Compression::gzip, 100); }),
                  "a.gz");
}

TEST(PlainFile, IsReadAsItIs) {
  const TempFolder folder;
  const std::string text = noise(10000);
  put_file(folder / "a", text);
  EXPECT_EQ(read_all(folder / "a", Compression::none, 999), text);
  put_file(folder / "a", "");
  EXPECT_EQ(read_all(folder / "a", Compression::none, 999), "");
}

}  // namespace
}  // namespace lode
