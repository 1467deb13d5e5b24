#include "io/gguf.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include "core/rng.h"
#include "gguf_bytes.h"
#include "safetensors_bytes.h"
#include "temp_folder.h"

namespace lode {
namespace {

std::string read_error(const std::string& bytes) {
  const TempFolder folder;
  write_bytes(folder / "m.gguf", bytes);
  return error_of([&] { GgufFile file(real_files(), folder / "m.gguf"); });
}

// Two tensors of 5 floats and 2 x 32 values in Q8_0, and a key of each kind.
GgufBytes valid() {
  GgufBytes file;
  file.text("general.architecture", "llama").u32("a.u32", 7);
  file.field("a.i8", 1, raw<std::int8_t>(-5)).field("a.u64", 10, raw<std::uint64_t>(UINT64_MAX));
  file.field("a.f32", 6, raw(1.5f)).field("a.bool", 7, raw<std::uint8_t>(1));
  file.field("a.texts", 9, raw(8u) + raw<std::uint64_t>(2) + raw_text("x") + raw_text(""));
  file.field("a.numbers", 9, raw(6u) + raw<std::uint64_t>(2) + raw(0.5f) + raw(-2.0f));
  file.field("a.integers", 9, raw(5u) + raw<std::uint64_t>(1) + raw(-9));
  file.info("t.first", {5}, 0, 0).info("t.second", {32, 2}, 8, 32);
  file.data = std::string(32, 'f') + std::string(68, 'q');
  return file;
}

TEST(Gguf, ReadsFieldsAndTensors) {
  const TempFolder folder;
  write_bytes(folder / "m.gguf", valid().bytes());
  const GgufFile file(real_files(), folder / "m.gguf");
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.integer("a.u32"), 7);
  EXPECT_EQ(file.integer("a.i8"), -5);
  EXPECT_EQ(file.number("a.f32"), 1.5);
  EXPECT_EQ(file.number("a.i8"), -5);
  EXPECT_EQ(file.boolean("a.bool"), true);
  EXPECT_EQ(file.texts("a.texts"), (std::vector<std::string_view>{"x", ""}));
  EXPECT_EQ(file.numbers("a.numbers"), (std::vector<double>{0.5, -2}));
  EXPECT_EQ(file.integers("a.integers"), (std::vector<std::int64_t>{-9}));
  EXPECT_FALSE(file.integer("absent").has_value());
  EXPECT_TRUE(file.texts("absent").empty());
  EXPECT_EQ(GgufFile::shown(*file.find_field("a.texts")), "[\"x\", \"\"]");
  EXPECT_EQ(GgufFile::shown(*file.find_field("a.u64")), "18446744073709551615");
  EXPECT_EQ(GgufFile::shown(*file.find_field("a.numbers"), 1), "[0.5, ... 2 elements]");

  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor* second = file.find("t.second");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->shape, (Shape{2, 32}));
  EXPECT_EQ(second->format(), QuantFormat::q8_0);
  EXPECT_EQ(second->bytes.size(), 68u);
  EXPECT_EQ(second->bytes[0], std::byte{'q'});
  EXPECT_EQ(file.find("t.third"), nullptr);
}

TEST(Gguf, WrongTypesNameTheKey) {
  const TempFolder folder;
  write_bytes(folder / "m.gguf", valid().bytes());
  const GgufFile file(real_files(), folder / "m.gguf");
  for (const std::string& message :
       {error_of([&] { file.text("a.u32"); }), error_of([&] { file.integer("a.f32"); }),
        error_of([&] { file.integer("a.u64"); }), error_of([&] { file.number("general.architecture"); }),
        error_of([&] { file.boolean("a.u32"); }), error_of([&] { file.texts("a.numbers"); }),
        error_of([&] { file.integers("a.texts"); }), error_of([&] { file.numbers("a.u32"); })}) {
    EXPECT_NE(message.find("m.gguf: key \""), std::string::npos) << message;
    EXPECT_NE(message.find("expected"), std::string::npos) << message;
  }
}

struct Attack {
  std::string_view name, message;
  GgufBytes file;
};

GgufBytes with_field(std::uint32_t type, const std::string& value) {
  return GgufBytes().field("k", type, value);
}
GgufBytes with_tensor(const std::vector<std::int64_t>& dims, std::uint32_t type, std::uint64_t offset,
                      const std::string& data = std::string(4096, 'd')) {
  GgufBytes file;
  file.info("t", dims, type, offset).data = data;
  return file;
}

TEST(Gguf, AttacksAreRefused) {
  const std::int64_t huge = std::int64_t{1} << 62;
  std::vector<Attack> attacks{
      {"version 1", "version 1", {.version = 1}},
      {"version 4", "version 4", {.version = 4}},
      {"big-endian", "big-endian", {.version = 0x03000000}},
      {"key count", "the number of keys", {.extra_fields = huge}},
      {"negative key count", "the number of keys is -1", {.extra_fields = -1}},
      {"more keys than bytes", "cannot hold", {.extra_fields = 1000}},
      {"tensor count", "the number of tensors", {.extra_tensors = huge}},
      {"more tensors than bytes", "cannot hold", {.extra_tensors = 1000}},
      {"string beyond the end", "key \"k\" needs", with_field(8, raw<std::uint64_t>(UINT64_MAX))},
      {"string of 1 GB", "key \"k\" needs", with_field(8, raw<std::uint64_t>(1u << 30))},
      {"array beyond the end", "elements", with_field(9, raw(0u) + raw<std::uint64_t>(UINT64_MAX / 2))},
      {"array whose size overflows", "elements",
       with_field(9, raw(10u) + raw<std::uint64_t>(UINT64_MAX / 8 + 2))},
      {"array of many texts", "elements", with_field(9, raw(8u) + raw<std::uint64_t>(1u << 29))},
      {"text in an array beyond the end", "key \"k\"",
       with_field(9, raw(8u) + raw<std::uint64_t>(1) + raw<std::uint64_t>(100))},
      {"array of arrays", "array of arrays", with_field(9, raw(9u) + raw<std::uint64_t>(0))},
      {"unknown value type", "unknown type 13", with_field(13, "xxxxxxxx")},
      {"bool of 2", "neither true nor false", with_field(7, raw<std::uint8_t>(2))},
      {"key twice", "twice", GgufBytes().u32("k", 1).u32("k", 2)},
      {"empty key", "printable", GgufBytes().u32("", 1)},
      {"key with a control character", "printable", GgufBytes().u32("a\nb", 1)},
      {"key too long", "printable", GgufBytes().u32(std::string(70000, 'k'), 1)},
      {"alignment 0", "power of two", GgufBytes().u32("general.alignment", 0)},
      {"alignment 24", "power of two", GgufBytes().u32("general.alignment", 24)},
      {"alignment text", "general.alignment", GgufBytes().text("general.alignment", "32")},
      {"no dimensions", "0 dimensions", with_tensor({}, 0, 0)},
      {"five dimensions", "5 dimensions", with_tensor({1, 1, 1, 1, 1}, 0, 0)},
      {"negative dimension", "negative", with_tensor({-32}, 0, 0)},
      {"product overflows", "too large", with_tensor({huge, 4}, 0, 0)},
      {"bytes overflow", "too large", with_tensor({INT64_MAX / 2, 2}, 27, 0)},
      {"broken block", "no whole blocks", with_tensor({33}, 8, 0)},
      {"retired type", "unknown type 4", with_tensor({32}, 4, 0)},
      {"unknown type", "unknown type 1000", with_tensor({32}, 1000, 0)},
      {"offset unaligned", "offset", with_tensor({4}, 0, 4)},
      {"offset beyond the end", "offset", with_tensor({4}, 0, std::uint64_t{1} << 40)},
      {"data beyond the end", "reaches beyond", with_tensor({4096}, 0, 0)},
      {"no data", "reaches beyond", with_tensor({1}, 0, 0, "")},
      {"overlap", "offset",
       [] {
         GgufBytes file = with_tensor({32}, 0, 0);
         return file.info("u", {32}, 0, 0);
       }()},
      {"hole", "offset",
       [] {
         GgufBytes file = with_tensor({32}, 0, 0);
         return file.info("u", {32}, 0, 256);
       }()},
      {"tensor twice", "twice",
       [] {
         GgufBytes file = with_tensor({32}, 0, 0);
         return file.info("t", {32}, 0, 128);
       }()},
      {"long tensor name", "printable", GgufBytes().info(std::string(64, 'n'), {1}, 0, 0)},
      {"part of a split model", "first part", GgufBytes().field("split.count", 2, raw<std::uint16_t>(3))},
  };
  for (const Attack& attack : attacks) {
    const std::string message = read_error(attack.file.bytes());
    EXPECT_NE(message.find(attack.message), std::string::npos) << attack.name << ": " << message;
    EXPECT_NE(message.find("m.gguf"), std::string::npos) << attack.name << ": " << message;
  }
}

TEST(Gguf, EveryTruncationIsRefused) {
  const std::string bytes = valid().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(read_error(bytes.substr(0, size)), "") << size;
  EXPECT_EQ(read_error(bytes), "");
  EXPECT_NE(read_error("GGU"), "");
  EXPECT_NE(read_error("ggml" + bytes.substr(4)).find("not a GGUF file"), std::string::npos);
}

TEST(Gguf, ZeroSizedTensorsAndNoTensors) {
  EXPECT_EQ(read_error(GgufBytes().bytes()), "");
  EXPECT_EQ(read_error(with_tensor({0, 5}, 0, 0, "").bytes()), "");
}

std::size_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

// The most keys and tensors a file may have, and arrays of empty strings.
TEST(Gguf, MemoryStaysWithinTheFileAnd64MB) {
  const TempFolder folder;
  GgufBytes file;
  for (int i = 0; i < 100'000; ++i) file.field(format("{:06}", i), 7, raw<std::uint8_t>(1));
  for (int i = 0; i < 200'000; ++i) file.info(format("{:06}", i), {0, 0, 0, 0}, 0, 0);
  const std::string bytes = file.bytes();
  write_bytes(folder / "m.gguf", bytes);
  const std::size_t before = peak_memory();
  const GgufFile read(real_files(), folder / "m.gguf");
  EXPECT_EQ(read.tensors().size(), 200'000u);
  if (LODE_SANITIZED == 0) {
    EXPECT_LT(peak_memory() - before, bytes.size() + (std::size_t{64} << 20));
  }
  GgufBytes texts;
  texts.field("k", 9, raw(8u) + raw<std::uint64_t>(3'000'000) + std::string(24'000'000, '\0'));
  write_bytes(folder / "t.gguf", texts.bytes());
  const GgufFile many(real_files(), folder / "t.gguf");
  EXPECT_NE(error_of([&] { many.texts("k"); }).find("at most"), std::string::npos);
}

TEST(Gguf, SplitModels) {
  const TempFolder folder;
  const auto part = [](std::uint16_t no, std::string_view name) {
    GgufBytes file;
    file.field("split.no", 2, raw(no)).field("split.count", 2, raw<std::uint16_t>(2));
    file.field("split.tensors.count", 5, raw<std::int32_t>(2));
    file.info(name, {32}, 0, 0).data = std::string(128, static_cast<char>('a' + no));
    return file;
  };
  write_bytes(folder / "m-00001-of-00002.gguf", part(0, "one").bytes());
  EXPECT_NE(error_of([&] { GgufFile f(real_files(), folder / "m-00001-of-00002.gguf"); }), "");
  write_bytes(folder / "m-00002-of-00002.gguf", part(1, "two").bytes());
  const GgufFile file(real_files(), folder / "m-00001-of-00002.gguf");
  ASSERT_NE(file.find("two"), nullptr);
  EXPECT_EQ(file.find("two")->bytes[0], std::byte{'b'});
  EXPECT_EQ(file.integer("split.no"), 0);
  EXPECT_NE(error_of([&] { GgufFile f(real_files(), folder / "m-00002-of-00002.gguf"); }).find("first part"),
            std::string::npos);
  write_bytes(folder / "m-00002-of-00002.gguf", part(1, "one").bytes());
  EXPECT_NE(error_of([&] { GgufFile f(real_files(), folder / "m-00001-of-00002.gguf"); }).find("twice"),
            std::string::npos);
}

TEST(Gguf, WhatIsWrittenIsRead) {
  const TempFolder folder;
  const GgufFields fields{{"general.architecture", std::string("llama")},
                          {"a.u32", std::uint32_t{5}},
                          {"a.f32", 0.25f},
                          {"a.bool", true},
                          {"a.texts", std::vector<std::string>{"one", "",
                                                               "thr\xc3\xa9"
                                                               "e"}},
                          {"a.floats", std::vector<float>{1, -2}},
                          {"a.ints", std::vector<std::int32_t>{3, -4}}};
  const std::vector<GgufTensorSpec> specs{{"a", {3}, QuantFormat::f32},
                                          {"empty", {0, 4}, QuantFormat::f32},
                                          {"b", {2, 64}, QuantFormat::q8_0},
                                          {"c", {5, 3}, QuantFormat::bf16}};
  std::string data;
  {
    GgufWriter writer(real_files(), folder / "m.gguf", fields, specs);
    for (const GgufTensorSpec& spec : specs) {
      for (std::uint64_t i = 0; i < spec.bytes(); i += 7) {
        const std::string piece(std::min<std::uint64_t>(7, spec.bytes() - i),
                                static_cast<char>('a' + i % 26));
        writer.write(std::as_bytes(std::span(piece)));
        data += piece;
      }
    }
    const std::uint64_t size = writer.finish();
    EXPECT_EQ(size, real_files().size(folder / "m.gguf"));
  }
  const GgufFile file(real_files(), folder / "m.gguf");
  EXPECT_EQ(file.integer("a.u32"), 5);
  EXPECT_EQ(file.number("a.f32"), 0.25);
  EXPECT_EQ(file.boolean("a.bool"), true);
  EXPECT_EQ(file.texts("a.texts")[2],
            "thr\xc3\xa9"
            "e");
  EXPECT_EQ(file.numbers("a.floats"), (std::vector<double>{1, -2}));
  EXPECT_EQ(file.integers("a.ints"), (std::vector<std::int64_t>{3, -4}));
  std::string read;
  for (const GgufTensorSpec& spec : specs) {
    const GgufTensor* tensor = file.find(spec.name);
    ASSERT_NE(tensor, nullptr) << spec.name;
    EXPECT_EQ(tensor->shape, spec.shape);
    EXPECT_EQ(tensor->format(), spec.format);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->bytes.data()) % 32, 0u);
    read.append(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
  }
  EXPECT_EQ(read, data);
}

// A failing disk at any call, and a writer that is given up, leave the old file and nothing else.
TEST(Gguf, WritingIsAllOrNothing) {
  const TempFolder folder;
  const std::string path = folder / "m.gguf";
  const auto write = [&](FileSystem& files) {
    GgufWriter writer(files, path, {}, {{"a", {8}, QuantFormat::f32}});
    const std::string data(32, 'x');
    writer.write(std::as_bytes(std::span(data)));
    writer.finish();
  };
  write_bytes(path, "old");
  FailingFiles counting(real_files(), INT64_MAX, ENOSPC);
  write(counting);
  write_bytes(path, "old");
  for (std::int64_t call = 1; call < counting.calls(); ++call) {
    FailingFiles failing(real_files(), call, ENOSPC, false);
    EXPECT_EQ(kind_of([&] { write(failing); }), ErrorKind::data) << call;
    EXPECT_EQ(real_files().list(folder.path()), (std::vector<std::string>{"m.gguf"})) << call;
    if (real_files().read(path) != "old") break;  // renamed: only the folder's sync is left
  }
  { GgufWriter writer(real_files(), path, {}, {{"a", {8}, QuantFormat::f32}}); }
  EXPECT_EQ(real_files().list(folder.path()), (std::vector<std::string>{"m.gguf"}));
}

TEST(Gguf, MutatedFilesAreReadOrRefused) {
  const TempFolder folder;
  const std::string good = valid().bytes(), path = folder / "m.gguf";
  Rng rng(7, "gguf");
  int read = 0, refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = good;
    for (std::uint64_t k = 0, n = 1 + rng.below(3); k < n; ++k) {
      const std::size_t at = rng.below(bytes.size());
      if (rng.below(4) == 0) {
        bytes.erase(at, rng.below(9));
      } else if (rng.below(3) == 0 && at + 8 <= bytes.size()) {
        const std::uint64_t value = rng.below(2) == 0 ? rng.below(40) : rng.below(UINT64_MAX);
        std::memcpy(bytes.data() + at, &value, 8);
      } else {
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.below(8)));
      }
      if (bytes.empty()) bytes = "G";
    }
    write_bytes(path, bytes);
    try {
      const GgufFile file(real_files(), path);
      std::size_t sum = 0;
      for (const GgufTensor& tensor : file.tensors()) {
        for (const std::byte b : tensor.bytes) sum += static_cast<std::size_t>(b);
      }
      for (const GgufField& field : file.fields()) sum += GgufFile::shown(field).size();
      EXPECT_GT(sum + 1, 0u);
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
