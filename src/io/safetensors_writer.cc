#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "core/fail.h"
#include "core/json.h"
#include "io/copy_block.h"
#include "io/safetensors.h"

namespace lode {
namespace {

constexpr std::size_t kChunk = std::size_t{128} << 10;  // hashed twice and copied while it is in the cache

std::uint64_t bytes_of(const TensorSpec& spec) {
  const MatrixSize size = matrix_size(spec.shape);
  return static_cast<std::uint64_t>(size.rows) * static_cast<std::uint64_t>(size.cols) * size_of(spec.dtype);
}

// The size field and the JSON, padded so that the data begins at a multiple of 8.
std::string make_header(std::span<const TensorSpec> specs) {
  std::unordered_set<std::string_view> names;
  Json header;
  header["__metadata__"]["format"] = "pt";
  std::uint64_t position = 0;
  auto& members = header.as_object();
  for (const TensorSpec& spec : specs) {
    if (!names.insert(spec.name).second || spec.name == "__metadata__") {
      fail(ErrorKind::internal, "the tensor name \"{}\" cannot be written twice", spec.name);
    }
    Json entry, shape = Json::array();
    for (const std::int64_t size : spec.shape) shape.push_back(size);
    entry["dtype"] = safetensors_name(spec.dtype);
    entry["shape"] = std::move(shape);
    entry["data_offsets"] = Json::Array{position, position + bytes_of(spec)};
    position += bytes_of(spec);
    members.emplace_back(spec.name, std::move(entry));
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t size = text.size();
  std::string out(sizeof(size), '\0');
  std::memcpy(out.data(), &size, sizeof(size));
  return out + text;
}

// Larger sorts first in a file.
int rank_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 3;
    case DType::i32:
      return 2;
    case DType::bf16:
      return 1;
    case DType::f16:
      return 0;
  }
  return 0;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(FileSystem& files, const std::string& path,
                                     std::vector<TensorSpec> specs)
    : specs_(std::move(specs)) {
  const std::string header = make_header(specs_);
  file_ = files.create_large(path);
  put(std::as_bytes(std::span(header)));
}

std::uint64_t SafetensorsWriter::file_size(std::span<const TensorSpec> specs) {
  std::uint64_t size = make_header(specs).size();
  for (const TensorSpec& spec : specs) size += bytes_of(spec);
  return size;
}

void SafetensorsWriter::put(std::span<const std::byte> data) {
  for (std::size_t begin = 0; begin < data.size(); begin += kChunk) {
    const auto chunk = data.subspan(begin, std::min(kChunk, data.size() - begin));
    file_hash_.add(chunk);
    tensor_hash_.add(chunk);
    file_->write(chunk);
    written_.size += chunk.size();
  }
}

// Through a buffer: as many whole rows of the file's matrix as fit, or a part of one.
void SafetensorsWriter::put_converted(const TensorSpec& spec, const ConstView& view) {
  const MatrixSize size = matrix_size(spec.shape);
  const auto element = static_cast<std::int64_t>(size_of(spec.dtype));
  const auto source = static_cast<std::int64_t>(size_of(view.dtype));
  const std::int64_t fit = static_cast<std::int64_t>(kBuffer) / element;
  const std::int64_t cols_a_block = std::min(fit, size.cols),
                     rows_a_block = std::max<std::int64_t>(fit / size.cols, 1);
  ByteStrides strides{view.stride * source, source};
  if (spec.transposed) std::swap(strides.row, strides.col);
  buffer_.resize(kBuffer);
  for (std::int64_t r = 0; r < size.rows; r += rows_a_block) {
    const std::int64_t rows = std::min(rows_a_block, size.rows - r);
    for (std::int64_t c = 0; c < size.cols; c += cols_a_block) {
      const std::int64_t cols = std::min(cols_a_block, size.cols - c);
      const auto* from = static_cast<const std::byte*>(view.data) + r * strides.row + c * strides.col;
      copy_block(from, view.dtype, strides, buffer_.data(), spec.dtype, {cols * element, element}, rows,
                 cols);
      put(std::span(buffer_).first(static_cast<std::size_t>(rows * cols * element)));
    }
  }
}

void SafetensorsWriter::write(const ConstView& view) {
  LODE_ASSERT(written_.tensor_hashes.size() < specs_.size());
  const TensorSpec& spec = specs_[written_.tensor_hashes.size()];
  const MatrixSize size = matrix_size(spec.shape);
  if (view.rows != (spec.transposed ? size.cols : size.rows) ||
      view.cols != (spec.transposed ? size.rows : size.cols) || !is_convertible(view.dtype, spec.dtype)) {
    fail(ErrorKind::internal, "tensor \"{}\": a view of {} x {} {} cannot be written as {} {}", spec.name,
         view.rows, view.cols, name_of(view.dtype), safetensors_name(spec.dtype), shape_text(spec.shape));
  }
  tensor_hash_.reset();
  if (view.dtype == spec.dtype && !spec.transposed && view.contiguous()) {
    put({static_cast<const std::byte*>(view.data), bytes_of(spec)});
  } else if (!view.empty()) {
    put_converted(spec, view);
  }
  written_.tensor_hashes.push_back(tensor_hash_.value());
}

WrittenFile SafetensorsWriter::finish() {
  LODE_ASSERT(written_.tensor_hashes.size() == specs_.size());
  file_->sync();
  file_->close();
  written_.hash = file_hash_.value();
  return std::move(written_);
}

WrittenFile write_safetensors(FileSystem& files, const std::string& path,
                              const std::vector<TensorSpec>& specs,
                              const std::function<ConstView(std::size_t)>& view) {
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    const int rank_a = rank_of(specs[a].dtype), rank_b = rank_of(specs[b].dtype);
    return rank_a != rank_b ? rank_a > rank_b : specs[a].name < specs[b].name;
  });
  std::vector<TensorSpec> sorted;
  for (const std::size_t i : order) sorted.push_back(specs[i]);
  const std::string temporary = path + ".tmp";
  WrittenFile written;
  try {
    SafetensorsWriter writer(files, temporary, std::move(sorted));
    for (const std::size_t i : order) writer.write(view(i));
    written = writer.finish();
    files.rename(temporary, path);
  } catch (const Error&) {
    try {
      files.remove(temporary);
    } catch (const Error&) {  // the first failure is the one to tell
    }
    throw;
  }
  files.sync_directory(parent_path(path));
  std::vector<std::uint64_t> hashes(specs.size());
  for (std::size_t k = 0; k < order.size(); ++k) hashes[order[k]] = written.tensor_hashes[k];
  written.tensor_hashes = std::move(hashes);
  return written;
}

}  // namespace lode
