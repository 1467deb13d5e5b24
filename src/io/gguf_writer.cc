#include <algorithm>
#include <cstring>
#include <set>

#include "core/fail.h"
#include "io/gguf.h"
#include "io/gguf_types.h"

namespace lode {
namespace {

constexpr std::uint64_t kAlignment = 32;
constexpr std::uint32_t kVersion = 3;

template <class T>
void append(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void append_text(std::string& out, std::string_view text) {
  append(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

void append_type(std::string& out, GgufType type) {
  append(out, static_cast<std::uint32_t>(type));
}

void append_head(std::string& out, GgufType element, std::size_t count) {
  append_type(out, GgufType::array);
  append_type(out, element);
  append(out, static_cast<std::uint64_t>(count));
}

template <class T>
constexpr GgufType type_of() {
  if constexpr (std::is_same_v<T, bool>) return GgufType::boolean;
  if constexpr (std::is_same_v<T, std::uint16_t>) return GgufType::u16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return GgufType::u32;
  if constexpr (std::is_same_v<T, std::int32_t>) return GgufType::i32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return GgufType::u64;
  if constexpr (std::is_same_v<T, float>) return GgufType::f32;
}

struct AppendValue {
  std::string& out;

  template <class T>
  void operator()(T value) const {
    append_type(out, type_of<T>());
    append(out, value);
  }
  void operator()(const std::string& text) const {
    append_type(out, GgufType::text);
    append_text(out, text);
  }
  void operator()(const std::vector<std::string>& texts) const {
    append_head(out, GgufType::text, texts.size());
    for (const std::string& text : texts) append_text(out, text);
  }
  template <class T>
  void operator()(const std::vector<T>& values) const {
    append_head(out, type_of<T>(), values.size());
    for (const T value : values) append(out, value);
  }
};

std::uint64_t padded(std::uint64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

std::string make_header(const GgufFields& fields, const std::vector<GgufTensorSpec>& specs) {
  std::string out = "GGUF";
  append(out, kVersion);
  append(out, static_cast<std::int64_t>(specs.size()));
  append(out, static_cast<std::int64_t>(fields.size()));
  std::set<std::string_view> names;
  for (const auto& [key, value] : fields) {
    if (key == "general.alignment" || !names.insert(key).second)
      fail(ErrorKind::internal, "the GGUF key \"{}\" cannot be written twice", key);
    append_text(out, key);
    std::visit(AppendValue{out}, value);
  }
  names.clear();
  std::uint64_t offset = 0;
  for (const GgufTensorSpec& spec : specs) {
    constexpr std::size_t kLongestName = 63, kMostDimensions = 4;
    if (spec.name.size() > kLongestName || spec.shape.empty() || spec.shape.size() > kMostDimensions)
      fail(ErrorKind::data, "tensor \"{}\" {} cannot be written to a GGUF file", spec.name,
           shape_text(spec.shape));
    if (!names.insert(spec.name).second)
      fail(ErrorKind::internal, "the GGUF tensor \"{}\" cannot be written twice", spec.name);
    append_text(out, spec.name);
    append(out, static_cast<std::uint32_t>(spec.shape.size()));
    for (auto n = spec.shape.rbegin(); n != spec.shape.rend(); ++n) append(out, *n);
    append(out, find_gguf_block(spec.format)->type);
    append(out, offset);
    offset = padded(offset + spec.bytes());
  }
  out.resize(padded(out.size()), '\0');
  return out;
}

}  // namespace

std::uint64_t GgufTensorSpec::bytes() const {
  if (find_gguf_block(format) == nullptr || !fits(format, shape.back()))
    fail(ErrorKind::internal, "tensor \"{}\" {} does not fit its GGUF format", name, shape_text(shape));
  const MatrixSize size = matrix_size(shape);
  return static_cast<std::uint64_t>(size.rows * row_bytes(format, size.cols));
}

GgufWriter::GgufWriter(FileSystem& files, const std::string& path, const GgufFields& fields,
                       std::vector<GgufTensorSpec> specs)
    : files_(files), path_(path), temporary_(path + ".tmp"), specs_(std::move(specs)) {
  const std::string header = make_header(fields, specs_);
  file_ = files_.create(temporary_);
  try {
    put(std::as_bytes(std::span(header)));
  } catch (const Error&) {  // no destructor runs
    file_.reset();
    files_.remove(temporary_);
    throw;
  }
}

GgufWriter::~GgufWriter() {
  if (finished_) return;
  file_.reset();
  try {
    files_.remove(temporary_);
  } catch (const Error&) {  // an error is under way already
  }
}

void GgufWriter::put(std::span<const std::byte> data) {
  file_->write(data);
  size_ += data.size();
}

void GgufWriter::pad() {
  constexpr std::byte kZeros[kAlignment] = {};
  put(std::span(kZeros).first(padded(size_) - size_));
}

void GgufWriter::write(std::span<const std::byte> data) {
  // Tensors without values take part in the order, but nothing is written for them.
  while (tensor_ < specs_.size() && specs_[tensor_].bytes() == 0) ++tensor_;
  if (data.empty()) return;
  LODE_ASSERT(tensor_ < specs_.size());
  const std::uint64_t size = specs_[tensor_].bytes();
  LODE_ASSERT(data.size() <= size - in_tensor_);
  put(data);
  in_tensor_ += data.size();
  if (in_tensor_ < size) return;
  pad();
  in_tensor_ = 0;
  ++tensor_;
}

std::uint64_t GgufWriter::finish() {
  write({});
  LODE_ASSERT(tensor_ == specs_.size());
  file_->sync();
  file_->close();
  file_.reset();
  files_.rename(temporary_, path_);
  finished_ = true;
  files_.sync_directory(parent_path(path_));
  return size_;
}

}  // namespace lode
