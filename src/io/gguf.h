// GGUF files, version 3 (and 2, the same layout): metadata and named tensors, often quantised; one file or
// the parts of a split model. Nothing in a file is trusted: every size is checked against the file before
// use. Memory beside the mapping stays below 64 MB.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/file.h"
#include "io/safetensors.h"
#include "kernels/quantized.h"

namespace lode {

struct GgufTensor {
  std::string_view name;
  Shape shape;             // as in PyTorch: the file's dimensions reversed
  std::uint32_t type = 0;  // the file's number
  std::span<const std::byte> bytes;

  std::optional<QuantFormat> format() const;  // nothing: a type that is known but cannot be read
  std::string type_name() const;              // "Q4_K"; "type 16 (IQ2_XXS)" when it cannot be read
};

enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

// One metadata value, still in the file.
struct GgufField {
  std::string_view key;
  GgufType type = GgufType::u8;     // array: of `element`
  GgufType element = GgufType::u8;  // type when it is no array
  std::uint64_t count = 1;
  std::span<const std::byte> bytes;
};

class GgufFile {
 public:
  // Maps the file, and the other parts when it is the first of a split model, and checks all of it. Throws
  // Error(data) with the path, and the key or tensor when it is one's fault.
  GgufFile(FileSystem& files, const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in the order of the files
  const GgufTensor* find(std::string_view name) const;                 // nullptr when absent
  // Memory of a part of a tensor that has been used (MappedFile::give_back).
  void give_back(std::span<const std::byte> part) const;
  std::uint64_t total_bytes() const { return total_bytes_; }  // of all parts

  const std::vector<GgufField>& fields() const { return fields_; }  // of the first part, in its order
  const GgufField* find_field(std::string_view key) const;          // nullptr when absent

  // The value of a key, nothing when the key is absent; Error(data) when it has another type. An integer is
  // any integer type that fits, a number any integer or float.
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  // Arrays; empty when absent. At most 2^21 elements.
  std::vector<std::string_view> texts(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  // The value for people: long texts and arrays are cut after `most` bytes or elements.
  static std::string shown(const GgufField& field, std::size_t most = 40);

 private:
  struct Part;
  void read_part(const Part& part);
  void index_names();
  const GgufField& array(const GgufField& field, std::string_view what) const;

  std::string path_;
  std::vector<std::unique_ptr<MappedFile>> maps_;
  std::uint64_t total_bytes_ = 0;
  std::vector<GgufField> fields_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::uint32_t> by_name_, by_key_;  // indices, sorted by name
};

// A value to be written; an array's elements have the type that readers expect of such a key.
using GgufValue =
    std::variant<bool, std::uint16_t, std::uint32_t, std::int32_t, std::uint64_t, float, std::string,
                 std::vector<std::string>, std::vector<float>, std::vector<std::int32_t>, std::vector<bool>>;
using GgufFields = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensorSpec {
  std::string name;
  Shape shape;  // as in PyTorch
  QuantFormat format = QuantFormat::f32;
  std::uint64_t bytes() const;
};

// Writes a file tensor by tensor in the order of `specs`, to a temporary file beside `path` that gets its
// name in finish(). Without finish() nothing is left.
class GgufWriter {
 public:
  GgufWriter(FileSystem& files, const std::string& path, const GgufFields& fields,
             std::vector<GgufTensorSpec> specs);
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  const std::vector<GgufTensorSpec>& specs() const { return specs_; }
  // The next bytes of the tensors, in order; a call does not reach beyond the tensor it begins in.
  void write(std::span<const std::byte> data);
  std::uint64_t finish();  // after the last tensor: syncs and renames; the file's size

 private:
  void put(std::span<const std::byte> data);
  void pad();

  FileSystem& files_;
  std::string path_, temporary_;
  std::vector<GgufTensorSpec> specs_;
  std::unique_ptr<OutputFile> file_;
  std::size_t tensor_ = 0;       // being written
  std::uint64_t in_tensor_ = 0;  // bytes of it written
  std::uint64_t size_ = 0;
  bool finished_ = false;
};

}  // namespace lode
