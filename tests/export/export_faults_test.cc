// Exports that fail leave nothing: refused ones, full disks, files that are not what was written.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "export/export_fixture.h"

namespace lode::test {
namespace {

ExportOptions options_of(ExportFormat format) {
  ExportOptions options{.format = format, .prompts = {"hello"}, .check_tokens = 1};
  const bool file = format == ExportFormat::gguf || format == ExportFormat::gguf_lora;
  options.out = file ? "it.gguf" : "it";
  options.shard_bytes = 40'000;
  options.modelfile = format == ExportFormat::gguf;
  return options;
}

constexpr ExportFormat kFormats[] = {ExportFormat::safetensors, ExportFormat::peft, ExportFormat::gguf,
                                     ExportFormat::gguf_lora};

class ExportFaults : public testing::TestWithParam<ExportFormat> {
 protected:
  const Source source{export_config(), export_adapter()};
  ExportOptions options = options_of(GetParam());
};

std::string test_name(const testing::TestParamInfo<ExportFormat>& test) {
  std::string name(name_of(test.param));
  std::ranges::replace(name, '-', '_');
  return name;
}

// One call that fails, and whatever cleans up works.
TEST_P(ExportFaults, AnyFailingCallLeavesNothing) {
  std::int64_t failed = 0;
  for (std::int64_t k = 1; k < 1000; ++k) {
    FailingFiles files(real_files(), k, EIO, false);
    const std::string error = error_of([&] { source.run(options, files); });
    if (files.calls() < k) {
      EXPECT_EQ(error, "");
      break;
    }
    ++failed;
    EXPECT_NE(error.find(std::strerror(EIO)), std::string::npos) << k << ": " << error;
    EXPECT_EQ(source.exported(), std::vector<std::string>()) << k << ": " << error;
    if (HasFailure()) return;
  }
  EXPECT_GE(failed, 10);
  EXPECT_FALSE(source.exported().empty());
}

// Nothing can be written or removed from that call on: no file gets the export's name, and the next export
// removes what is left.
TEST_P(ExportFaults, AFullDiskLeavesNoExport) {
  FailingFiles counting(real_files(), 1'000'000, ENOSPC);
  source.run(options, counting);
  // All but the last: with that one, which syncs the folder's names, the export is complete.
  for (std::int64_t k = 1; k < counting.calls(); k += 3) {
    real_files().remove(source.folder / "out");
    real_files().make_directory(source.folder / "out");
    FailingFiles files(real_files(), k, ENOSPC, true);
    const std::string error = error_of([&] { source.run(options, files); });
    EXPECT_NE(error.find(std::strerror(ENOSPC)), std::string::npos) << k << ": " << error;
    EXPECT_FALSE(real_files().exists(source.out(options.out))) << k;
    if (HasFailure()) return;
  }
  source.run(options);
  for (const std::string& name : source.exported()) EXPECT_FALSE(name.starts_with(".tmp")) << name;
}

// What is read again is not what was written: every fourth byte of the second half of one file's bytes.
class TamperedMap : public MappedFile {
 public:
  explicit TamperedMap(std::span<const std::byte> bytes) : bytes_(bytes.begin(), bytes.end()) {
    for (std::size_t i = bytes_.size() / 2 | 3; i < bytes_.size(); i += 4) bytes_[i] ^= std::byte{0x80};
  }
  std::span<const std::byte> bytes() const override { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class TamperingFiles : public FailingFiles {
 public:
  TamperingFiles(std::string out, std::string ending)
      : FailingFiles(real_files(), 1'000'000, EIO), out_(std::move(out)), ending_(std::move(ending)) {}
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    auto file = FailingFiles::map(path);
    if (!path.starts_with(out_) || !path.ends_with(ending_)) return file;
    ++tampered;
    return std::make_unique<TamperedMap>(file->bytes());
  }
  int tampered = 0;

 private:
  std::string out_, ending_;
};

TEST_P(ExportFaults, ADamagedExportIsNotPublished) {
  const bool file = GetParam() == ExportFormat::gguf || GetParam() == ExportFormat::gguf_lora;
  TamperingFiles files(source.folder / "out", file ? "it.gguf" : ".safetensors");
  EXPECT_EQ(kind_of([&] { source.run(options, files); }), ErrorKind::data);
  const std::string error = error_of([&] { source.run(options, files); });
  EXPECT_NE(error.find("the check failed"), std::string::npos) << error;
  EXPECT_NE(error.find(source.out(options.out)), std::string::npos) << error;
  EXPECT_GT(files.tampered, 0);
  EXPECT_EQ(source.exported(), std::vector<std::string>());
}

class SmallDisk : public FailingFiles {
 public:
  SmallDisk() : FailingFiles(real_files(), 1'000'000, EIO) {}
  std::uint64_t free_space(const std::string&) override { return 20'000; }
};

TEST_P(ExportFaults, SpaceForAModelIsAskedForFirst) {
  SmallDisk files;
  const std::string error = error_of([&] { source.run(options, files); });
  const bool adapter = GetParam() == ExportFormat::peft || GetParam() == ExportFormat::gguf_lora;
  if (adapter) {
    EXPECT_EQ(error, "");
  } else {
    EXPECT_NE(error.find("the export needs "), std::string::npos) << error;
    EXPECT_NE(error.find("(20000 bytes) left"), std::string::npos) << error;
    EXPECT_EQ(source.exported(), std::vector<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExportFaults, testing::ValuesIn(kFormats), test_name);

TEST(ExportRefusals, SayWhatToDo) {
  const Source plain, embedded(export_config(), AdapterSpec{.rank = 2, .targets = {"embed_tokens"}}),
      copied(export_config(),
             AdapterSpec{.rank = 2, .targets = {"q_proj"}, .additional_targets = {"lm_head"}});
  struct Case {
    const Source& source;
    ExportOptions options;
    ErrorKind kind;
    std::string message;
  };
  const Case cases[] = {
      {plain, {.format = ExportFormat::peft, .out = "a"}, ErrorKind::usage, "give --adapter"},
      {plain, {.format = ExportFormat::gguf_lora, .out = "a.gguf"}, ErrorKind::usage, "give --adapter"},
      {plain, {.format = ExportFormat::gguf, .out = "a.bin"}, ErrorKind::usage, "ends in .gguf"},
      {plain,
       {.format = ExportFormat::safetensors, .out = "a/"},
       ErrorKind::usage,
       "names no file or folder"},
      {plain,
       {.format = ExportFormat::gguf, .out = "a.gguf", .gguf = QuantFormat::q6_k},
       ErrorKind::usage,
       "Q6_K cannot be written"},
      {embedded, {.format = ExportFormat::gguf_lora, .out = "a.gguf"}, ErrorKind::data, "merge it instead"},
      {copied, {.format = ExportFormat::gguf_lora, .out = "a.gguf"}, ErrorKind::data, "merge it instead"},
      {plain,
       {.out = "a", .prompts = {std::string(200, '?')}},
       ErrorKind::usage,
       "no prompt of the check fits"},
  };
  for (const Case& c : cases) {
    const auto run = [&c] { c.source.run(c.options); };
    const std::string error = error_of(run);
    EXPECT_NE(error.find(c.message), std::string::npos) << error;
    EXPECT_EQ(kind_of(run), c.kind) << error;
    EXPECT_EQ(c.source.exported(), std::vector<std::string>()) << error;
  }
}

TEST(ExportRefusals, NothingIsOverwritten) {
  const Source source;
  for (const std::string name : {"there", "there.gguf", "Modelfile"})
    write_file_atomically(real_files(), source.out(name), "mine");
  const ExportOptions options[] = {
      {.out = "there"},
      {.format = ExportFormat::gguf, .out = "there.gguf"},
      {.format = ExportFormat::gguf, .out = "third.gguf", .modelfile = true},
  };
  for (const ExportOptions& o : options) {
    EXPECT_NE(error_of([&] { source.run(o); }).find("exists already"), std::string::npos) << o.out;
    EXPECT_EQ(source.exported().size(), 3u);
  }
  for (const std::string& name : source.exported()) EXPECT_EQ(real_files().read(source.out(name)), "mine");
}

TEST(ExportRefusals, WhatStoodBesideAFileThatIsGoneIsReplaced) {
  const Source source;
  const ExportOptions options{.format = ExportFormat::gguf, .out = "model.gguf", .modelfile = true};
  source.run(options);
  real_files().remove(source.out("model.gguf"));
  write_file_atomically(real_files(), source.out("model.gguf.check.json"), "old");
  source.run(options);
  EXPECT_NE(real_files().read(source.out("model.gguf.check.json")), "old");
  EXPECT_EQ(source.exported().size(), 3u);
}

}  // namespace
}  // namespace lode::test
