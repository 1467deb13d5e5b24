#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/fail.h"
#include "core/json.h"

namespace lode {
namespace {

constexpr std::uint64_t kLargestHeader = 100'000'000;
constexpr std::size_t kMostTensors = 1'000'000;
constexpr std::size_t kMostDimensions = 16;

// Every type of the format with its bits per element.
constexpr std::array<std::pair<std::string_view, int>, 22> kTypes{{
    {"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8},     {"F8_E8M0", 8},     {"I16", 16},    {"U16", 16}, {"F16", 16},
    {"BF16", 16},   {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I32", 32},    {"U32", 32}, {"F32", 32},
    {"C64", 64},    {"F64", 64},        {"I64", 64},        {"U64", 64},
}};

std::string shown(std::string_view name) {
  return name.size() <= 200 ? std::string(name) : std::string(name.substr(0, 200)) + "...";
}

// A whole number from the header: never negative, never a fraction.
std::uint64_t read_size(const Json& value, std::string_view what) {
  if (!value.is_int() || value.as_int() < 0) {
    fail(ErrorKind::data, "{}: expected whole numbers of at least 0, found {}", what,
         value.is_number() ? shown(value.dump()) : std::string(value.type_name()));
  }
  return static_cast<std::uint64_t>(value.as_int());
}

// Bytes of a tensor by its type and shape.
std::uint64_t expected_bytes(const TensorInfo& tensor, std::string_view what) {
  const auto type = std::ranges::find(kTypes, tensor.dtype, [](const auto& t) { return t.first; });
  if (type == kTypes.end()) fail(ErrorKind::data, "{}: unknown dtype \"{}\"", what, shown(tensor.dtype));
  auto bits = static_cast<std::uint64_t>(type->second);
  for (const std::int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(size), &bits)) {
      fail(ErrorKind::data, "{}: shape {} is too large", what, shape_text(tensor.shape));
    }
  }
  if (bits % 8 != 0)
    fail(ErrorKind::data, "{}: shape {} does not fill whole bytes", what, shape_text(tensor.shape));
  return bits / 8;
}

TensorInfo read_tensor(const std::string& name, const Json& entry, std::string_view path) {
  const std::string what = format("{}: tensor \"{}\"", path, shown(name));
  if (name.find('\0') != std::string::npos) fail(ErrorKind::data, "{}: a tensor's name has a NUL byte", path);
  const Json *dtype = entry.find("dtype"), *shape = entry.find("shape"),
             *offsets = entry.find("data_offsets");
  if (entry.size() != 3 || dtype == nullptr || shape == nullptr || offsets == nullptr ||
      !dtype->is_string() || !shape->is_array() || !offsets->is_array() || offsets->size() != 2) {
    fail(ErrorKind::data, "{}: expected exactly dtype, shape and two data_offsets", what);
  }
  if (shape->size() > kMostDimensions) {
    fail(ErrorKind::data, "{}: {} dimensions, at most {} are read", what, shape->size(), kMostDimensions);
  }
  TensorInfo tensor{name, dtype->as_string(), {}, 0, 0};
  for (const Json& size : shape->as_array()) {
    tensor.shape.push_back(static_cast<std::int64_t>(read_size(size, what + ": shape")));
  }
  tensor.begin = read_size(offsets->as_array()[0], what + ": data_offsets");
  tensor.end = read_size(offsets->as_array()[1], what + ": data_offsets");
  if (tensor.begin > tensor.end) {
    fail(ErrorKind::data, "{}: begins at {} behind its end {}", what, tensor.begin, tensor.end);
  }
  const std::uint64_t bytes = expected_bytes(tensor, what);
  if (bytes != tensor.end - tensor.begin) {
    fail(ErrorKind::data, "{}: {} {} needs {} bytes, the offsets give {}", what, tensor.dtype,
         shape_text(tensor.shape), bytes, tensor.end - tensor.begin);
  }
  return tensor;
}

void refuse_pickle(const std::string& path) {
  for (const std::string_view ending : {".bin", ".pt", ".pth", ".ckpt", ".pkl"}) {
    if (path.ends_with(ending)) {
      fail(ErrorKind::data, "{}: pickled files can run code and are never read; convert it to safetensors",
           path);
    }
  }
}

}  // namespace

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += format(i == 0 ? "{}" : ", {}", shape[i]);
  return text + "]";
}

MatrixSize matrix_size(const Shape& shape) {
  if (shape.empty()) return {1, 1};
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return {rows, shape.back()};
}

std::string_view safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::i32:
      return "I32";
  }
  return "?";
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32}) {
    if (name == safetensors_name(dtype)) return dtype;
  }
  return std::nullopt;
}

SafetensorsFile::SafetensorsFile(FileSystem& files, const std::string& path) : path_(path) {
  refuse_pickle(path);
  file_ = files.map(path);
  const std::span<const std::byte> all = file_->bytes();
  std::uint64_t header_size = 0;
  if (all.size() < sizeof(header_size))
    fail(ErrorKind::data, "{}: {} bytes are no safetensors file", path, all.size());
  std::memcpy(&header_size, all.data(), sizeof(header_size));
  if (header_size > kLargestHeader) {
    fail(ErrorKind::data, "{}: a header of {} bytes, at most {} are read; not a safetensors file?", path,
         header_size, kLargestHeader);
  }
  if (header_size > all.size() - sizeof(header_size)) {
    fail(ErrorKind::data, "{}: the header of {} bytes ends behind the file of {} bytes; cut off?", path,
         header_size, all.size());
  }
  buffer_ = all.subspan(sizeof(header_size) + header_size);
  read_header(file_->text().substr(sizeof(header_size), header_size));
  std::ranges::sort(tensors_, [](const TensorInfo& a, const TensorInfo& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  check_layout();
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

void SafetensorsFile::read_header(std::string_view header) {
  if (!header.starts_with('{')) fail(ErrorKind::data, "{}: the header does not begin with \"{{\"", path_);
  // A value costs up to 300 bytes: 60 MB, and more only as the file grows.
  const auto most_values = static_cast<std::int64_t>(200'000 + file_->bytes().size() / 256);
  const Json json = parse_json(header, path_ + " (header)", {.max_depth = 8, .max_values = most_values});
  if (json.size() > kMostTensors + 1) {
    fail(ErrorKind::data, "{}: {} tensors, at most {} are read", path_, json.size(), kMostTensors);
  }
  for (const auto& [name, entry] : json.as_object()) {
    if (name != "__metadata__") {
      tensors_.push_back(read_tensor(name, entry, path_));
      continue;
    }
    if (!entry.is_object()) fail(ErrorKind::data, "{}: __metadata__ is not an object", path_);
    for (const auto& [key, value] : entry.as_object()) {
      if (!value.is_string())
        fail(ErrorKind::data, "{}: __metadata__ \"{}\" is not a string", path_, shown(key));
      metadata_.emplace(key, value.as_string());
    }
  }
}

// The tensors fill the buffer without holes or overlaps.
void SafetensorsFile::check_layout() const {
  std::uint64_t position = 0;
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.begin != position) {
      fail(ErrorKind::data, "{}: tensor \"{}\" begins at {}, the one before it ends at {}", path_,
           shown(tensor.name), tensor.begin, position);
    }
    position = tensor.end;
  }
  if (position != buffer_.size()) {
    fail(ErrorKind::data, "{}: the tensors need {} bytes, the file holds {}; cut off or damaged?", path_,
         position, buffer_.size());
  }
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  return buffer_.subspan(tensor.begin, tensor.end - tensor.begin);
}

ConstView SafetensorsFile::view(const TensorInfo& tensor) const {
  const std::optional<DType> dtype = dtype_from_safetensors(tensor.dtype);
  if (!dtype)
    fail(ErrorKind::data, "{}: tensor \"{}\" is {}, which cannot be used", path_, tensor.name, tensor.dtype);
  const std::byte* data = bytes(tensor).data();
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(*dtype) != 0) {
    fail(ErrorKind::data, "{}: tensor \"{}\" is not aligned in the file; copy it instead", path_,
         tensor.name);
  }
  const MatrixSize size = matrix_size(tensor.shape);
  return {data, *dtype, size.rows, size.cols, size.cols};
}

}  // namespace lode
