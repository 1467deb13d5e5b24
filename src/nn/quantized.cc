#include "nn/quantized.h"

#include <algorithm>
#include <cstring>

#include "autograd/profile.h"
#include "core/parallel.h"
#include "kernels/embedding.h"

namespace lode {
namespace {

constexpr std::int64_t kCopyGrain = std::int64_t{1} << 20;  // bytes that are worth a thread

std::int64_t rows_of(const std::vector<QuantizedStorage::Band>& bands) {
  std::int64_t rows = 0;
  for (const auto& band : bands) rows += band.rows;
  return rows;
}

}  // namespace

QuantizedStorage::QuantizedStorage(Memory& memory, std::int64_t cols, const std::vector<Band>& bands)
    : ParameterStorage(memory, rows_of(bands), cols) {
  std::int64_t begin = 0, offset = 0;
  for (const Band& band : bands) {
    if (!fits(band.format, cols)) {
      fail(ErrorKind::data, "rows of {} values cannot be kept as {}, whose blocks have {}", cols,
           name_of(band.format), block_values(band.format));
    }
    const std::int64_t bytes = row_bytes(band.format, cols);
    bands_.push_back({begin, band.rows, band.format, offset, bytes});
    begin += band.rows;
    offset += band.rows * bytes;
  }
  data_ = memory.allocate(static_cast<std::size_t>(offset), MemoryTag::weights);
}

const QuantizedStorage::Placed& QuantizedStorage::band_at(std::int64_t row) const {
  const auto found = std::ranges::find_if(
      bands_, [row](const Placed& band) { return row >= band.begin && row < band.begin + band.rows; });
  LODE_ASSERT(found != bands_.end());
  return *found;
}

std::span<std::byte> QuantizedStorage::band_bytes(std::int64_t first_row) {
  const Placed& band = band_at(first_row);
  const std::int64_t skipped = first_row - band.begin;
  return {data_->data() + band.offset + skipped * band.row_bytes,
          static_cast<std::size_t>((band.rows - skipped) * band.row_bytes)};
}

void QuantizedStorage::read_rows(Context& context, std::int64_t first, View out) {
  for (const Placed& band : bands_) {
    const std::int64_t begin = std::max(first, band.begin),
                       end = std::min(first + out.rows, band.begin + band.rows);
    if (begin >= end) continue;
    dequantize_rows(context.kernel, band.format, data_->data() + band.offset, begin - band.begin,
                    out.slice_rows(begin - first, end - begin));
  }
}

void QuantizedStorage::write_rows(Context& context, std::int64_t first, ConstView values) {
  const Placed& band = band_at(first);
  LODE_ASSERT(first + values.rows <= band.begin + band.rows);
  if (!can_quantize(band.format)) {
    fail(ErrorKind::internal, "values cannot be quantised to {}: its blocks come from a file only",
         name_of(band.format));
  }
  quantize_rows(context.kernel, band.format, values, band_bytes(first).data());
}

const std::byte* QuantizedStorage::int8_rows(Context& context) {
  const bool all =
      std::ranges::all_of(bands_, [](const Placed& band) { return band.format == QuantFormat::int8; });
  return all ? data_->data() : ParameterStorage::int8_rows(context);
}

void QuantizedStorage::look_up(Context& context, std::span<const std::int32_t> ids, float scale, bool add,
                               View y) {
  if (y.empty()) return;
  constexpr std::int64_t kRows = 256;  // a panel of this many tokens at a time
  Workspace::Scope scope(*context.kernel.workspace);
  const std::int64_t most = std::min(kRows, y.rows);
  const View panel{scope.take<float>(most * cols()), DType::f32, most, cols(), cols()};
  std::vector<std::int32_t> order(static_cast<std::size_t>(most));
  for (std::int64_t i = 0; i < most; ++i) order[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  for (std::int64_t begin = 0; begin < y.rows; begin += kRows) {
    const std::int64_t count = std::min(kRows, y.rows - begin);
    parallel_for(context.kernel.threads, count, 16, [&](std::int64_t from, std::int64_t to) {
      KernelContext one{1, nullptr};
      for (std::int64_t i = from; i < to; ++i) {
        const std::int64_t row = ids[static_cast<std::size_t>(begin + i)];
        const Placed& band = band_at(row);
        dequantize_rows(one, band.format, data_->data() + band.offset, row - band.begin,
                        panel.slice_rows(i, 1));
      }
    });
    embedding_forward(y.dtype, context.kernel, std::span(order).first(static_cast<std::size_t>(count)), panel,
                      scale, add, y.slice_rows(begin, count));
  }
}

void write_blocks(Context& context, const Parameter& parameter, QuantFormat format,
                  std::span<const std::byte> rows, std::int64_t first) {
  const std::int64_t bytes = row_bytes(format, parameter.cols);
  const auto count = static_cast<std::int64_t>(rows.size()) / bytes;
  LODE_ASSERT(count * bytes == static_cast<std::int64_t>(rows.size()) && first + count <= parameter.rows);
  auto* quantized = dynamic_cast<QuantizedStorage*>(parameter.storage.get());
  if (quantized == nullptr) {
    dequantize_rows(context.kernel, format, rows.data(), 0, parameter.values().slice_rows(first, count));
    parameter.storage->changed(false);
    return;
  }
  if (quantized->format_at(parameter.begin) == format) {
    std::byte* out = quantized->band_bytes(parameter.begin + first).data();
    parallel_for(context.kernel.threads, count, std::max<std::int64_t>(kCopyGrain / bytes, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   std::memcpy(out + begin * bytes, rows.data() + begin * bytes,
                               static_cast<std::size_t>((end - begin) * bytes));
                 });
    parameter.storage->changed(false);
    return;
  }
  Tensor values(context.memory, MemoryTag::workspace, DType::f32, count, parameter.cols);
  dequantize_rows(context.kernel, format, rows.data(), 0, values.view());
  parameter.write(context, values.view(), first);
}

}  // namespace lode
