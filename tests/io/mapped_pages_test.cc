// A file that has been loaded does not stay in memory beside the tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "io/gguf.h"
#include "io/weights.h"
#include "temp_folder.h"

namespace lode {
namespace {

constexpr std::int64_t kRows = 8192, kCols = 1024;  // 32 MiB
constexpr std::size_t kFile = std::size_t{kRows} * kCols * sizeof(float);

// Bytes of the process's mappings of a file that are in memory.
std::size_t resident(const std::string& path) {
  std::istringstream lines(real_files().read("/proc/self/smaps"));
  std::string line;
  bool inside = false;
  std::size_t total = 0;
  while (std::getline(lines, line)) {
    if (line.find('-') != std::string::npos && line.find(':') > line.find(' ')) inside = line.ends_with(path);
    if (inside && line.starts_with("Rss:")) total += std::stoul(line.substr(4)) * 1024;
  }
  return total;
}

// Remembers how much of its file was in memory whenever something was given back.
class WatchedFiles : public FailingFiles {
 public:
  WatchedFiles() : FailingFiles(real_files(), 1'000'000'000, 0) {}
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    return std::make_unique<Watched>(real_files().map(path), path, most_);
  }
  std::size_t most() const { return most_; }

 private:
  struct Watched : MappedFile {
    Watched(std::unique_ptr<MappedFile> file, std::string name, std::size_t& seen)
        : file_(std::move(file)), path_(std::move(name)), most_(seen) {}
    std::span<const std::byte> bytes() const override { return file_->bytes(); }
    void give_back(std::span<const std::byte> part) const override {
      most_ = std::max(most_, resident(path_));
      file_->give_back(part);
    }
    std::unique_ptr<MappedFile> file_;
    std::string path_;
    std::size_t& most_;
  };
  std::size_t most_ = 0;
};

class MappedPages : public ::testing::Test {
 protected:
  std::string write() {
    const std::vector<float> numbers(kRows * kCols, 1.5f);
    const std::string path = folder_ / "model.safetensors";
    write_safetensors(real_files(), path, {{"x", DType::f32, {kRows, kCols}}}, [&](std::size_t) {
      return ConstView{numbers.data(), DType::f32, kRows, kCols, kCols};
    });
    return path;
  }
  TempFolder folder_;
};

TEST_F(MappedPages, AreGivenBackAsTheyAreRead) {
  const std::string path = write();
  WatchedFiles files;
  const WeightSet weights(files, path);
  std::vector<bf16> x(kRows * kCols);
  load_tensors(weights, {{"x", {kRows, kCols}, {x.data(), DType::bf16, kRows, kCols, kCols}}},
               {.threads = 1});
  EXPECT_EQ(to_f32(x.back()), 1.5f);
  constexpr std::size_t kAround = std::size_t{256}
                                  << 10;  // of the header, and what the system maps with a page
  EXPECT_GE(files.most(), static_cast<std::size_t>(kLoadedAtOnce)) << "it was in memory at all";
  EXPECT_LE(files.most(), static_cast<std::size_t>(kLoadedAtOnce) + kAround);
  EXPECT_LE(resident(path), kAround);
}

TEST_F(MappedPages, ComeAgainWhenTheyAreRead) {
  const std::string path = write();
  const SafetensorsFile file(real_files(), path);
  const auto bytes = file.bytes(*file.find("x"));
  const std::string before(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_GE(resident(path), kFile);
  file.give_back(bytes);
  EXPECT_LT(resident(path), kFile / 16);
  EXPECT_EQ(before, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

TEST_F(MappedPages, OfAGgufFileAreGivenBack) {
  const std::string path = folder_ / "model.gguf";
  {
    GgufWriter writer(real_files(), path, {{"general.architecture", std::string("llama")}},
                      {{"x", {kRows, kCols}, QuantFormat::f32}});
    const std::vector<std::byte> zeros(kFile);
    writer.write(zeros);
    writer.finish();
  }
  const GgufFile file(real_files(), path);
  const GgufTensor& tensor = *file.find("x");
  const std::string before(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  EXPECT_GE(resident(path), kFile);
  file.give_back(tensor.bytes);
  EXPECT_LT(resident(path), kFile / 16);
}

// A row range of a target is that range of the whole.
TEST_F(MappedPages, RowsCanBeLoadedAlone) {
  std::vector<float> numbers(7 * 3);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const std::string path = folder_ / "rows.safetensors";
  write_safetensors(real_files(), path, {{"x", DType::f16, {7, 3}}}, [&](std::size_t) {
    return ConstView{numbers.data(), DType::f32, 7, 3, 3};
  });
  const WeightSet weights(real_files(), path);
  std::vector<float> x(2 * 3);
  TensorTarget target{.name = "x", .shape = {7, 3}, .view = {x.data(), DType::f32, 2, 3, 3}};
  target.first_row = 4;
  load_tensors(weights, {target}, {});
  EXPECT_EQ(x, std::vector<float>(numbers.begin() + 12, numbers.begin() + 18));
}

}  // namespace
}  // namespace lode
