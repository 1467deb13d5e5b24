#include "core/scratch_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/file.h"
#include "core/memory.h"
#include "lode/error.h"
#include "temp_folder.h"

namespace lode {
namespace {

TEST(ScratchFile, ReadsWhatWasWrittenAndHasNoName) {
  const TempFolder folder;
  for (const bool direct : {false, true}) {
    const auto file = open_scratch(folder.path(), direct);
    EXPECT_TRUE(real_files().list(folder.path()).empty());
    Memory memory;
    const auto storage = memory.allocate(2 << 20, MemoryTag::program);
    const std::span<std::byte> bytes(storage->data(), 2 << 20);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 / 5);
    const std::vector<std::byte> before(bytes.begin(), bytes.end());
    constexpr std::size_t kUnit = ScratchFile::kDirectUnit;
    file->write(3 * kUnit, bytes);
    file->write(0, bytes.first(kUnit));
    std::memset(bytes.data(), 0, bytes.size());
    file->read(3 * kUnit, bytes);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), before.begin()));
    file->read(0, bytes.first(kUnit));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + kUnit, before.begin()));
  }
}

TEST(ScratchFile, NamesAFolderThatIsNotThere) {
  const TempFolder folder;
  try {
    open_scratch(folder / "absent", false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("absent: cannot make a scratch file in this folder"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace lode
