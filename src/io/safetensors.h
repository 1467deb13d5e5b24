// safetensors files, Hugging Face's format: named tensors behind a JSON header. Nothing in a file is trusted:
// each check of the reference reader is made before anything is used, and memory stays within about the
// file's size.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/direct_output.h"
#include "core/file.h"
#include "core/tensor.h"
#include "io/hash.h"

namespace lode {

using Shape = std::vector<std::int64_t>;

std::string shape_text(const Shape& shape);  // "[2, 3]"

// The matrix that a view of such a tensor is: [] is 1x1, [n] is 1xn, of higher ranks the last is the columns.
struct MatrixSize {
  std::int64_t rows, cols;
};
MatrixSize matrix_size(const Shape& shape);

std::string_view safetensors_name(DType dtype);  // "F32", "BF16", "F16", "I32"
std::optional<DType> dtype_from_safetensors(std::string_view name);

struct TensorInfo {
  std::string name;
  std::string dtype;  // as the file spells it; may be one that has no DType ("I64", "U8", ...)
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // bytes within the data buffer
};

class SafetensorsFile {
 public:
  // Maps the file and checks the whole header. Throws Error(data) with the path, and the tensor when it is
  // one's fault.
  SafetensorsFile(FileSystem& files, const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of their data
  const TensorInfo* find(std::string_view name) const;                 // nullptr when absent
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  std::span<const std::byte> bytes(const TensorInfo& tensor) const;
  // Throws Error(data) for an element type without a DType or data that is not aligned for it.
  ConstView view(const TensorInfo& tensor) const;
  std::span<const std::byte> file_bytes() const { return file_->bytes(); }
  // Memory of a part of the file that has been used (MappedFile::give_back).
  void give_back(std::span<const std::byte> part) const { file_->give_back(part); }

 private:
  void read_header(std::string_view header);
  void check_layout() const;

  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::span<const std::byte> buffer_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string_view, std::size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

// What one tensor of a file to be written is.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;  // in the file; floats are converted to it
  Shape shape;               // in the file
  bool transposed = false;   // the view handed in is the transpose of the file's matrix
};

struct WrittenFile {
  std::uint64_t size = 0, hash = 0;
  std::vector<std::uint64_t> tensor_hashes;  // of each tensor's bytes, in the order of the specs
};

// Writes a file tensor by tensor in the order of `specs`, which is also the order of the data. Not atomic:
// whoever needs that gives a temporary path.
class SafetensorsWriter {
 public:
  static constexpr std::size_t kBuffer = std::size_t{1} << 20;  // bytes: what is converted on its way
  // All that it holds beside the views, bytes.
  static constexpr std::size_t kHeld = kBuffer + kDirectBuffers;

  SafetensorsWriter(FileSystem& files, const std::string& path, std::vector<TensorSpec> specs);
  static std::uint64_t file_size(std::span<const TensorSpec> specs);

  void write(const ConstView& view);  // the next tensor; the view is read during the call only
  WrittenFile finish();               // after the last tensor: syncs and closes

 private:
  void put(std::span<const std::byte> data);
  void put_converted(const TensorSpec& spec, const ConstView& view);

  std::vector<TensorSpec> specs_;
  std::unique_ptr<OutputFile> file_;
  WrittenFile written_;
  Hasher file_hash_, tensor_hash_;
  std::vector<std::byte> buffer_;
};

// Writes a whole file atomically, its tensors ordered as Hugging Face orders them (by alignment of the type,
// then name). view(i) is called once for each specs[i], in the order of the file; hashes come back in the
// order of `specs`.
WrittenFile write_safetensors(FileSystem& files, const std::string& path,
                              const std::vector<TensorSpec>& specs,
                              const std::function<ConstView(std::size_t)>& view);

}  // namespace lode
