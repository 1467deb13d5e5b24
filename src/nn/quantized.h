// A frozen weight that stays in the blocks of a quantised format and is made a panel of floats for each use.
#pragma once

#include <vector>

#include "kernels/quantized.h"
#include "nn/parameter.h"

namespace lode {

// Rows in bands, each of its own format (files quantise q, k and v of one layer differently).
class QuantizedStorage : public ParameterStorage {
 public:
  struct Band {
    std::int64_t rows;
    QuantFormat format;
  };
  QuantizedStorage(Memory& memory, std::int64_t cols, const std::vector<Band>& bands);

  // f32 or bf16, dequantised into scratch memory that is given back at the last release.
  ConstView acquire(Context& context, DType form) override { return acquire_scratch(context, form); }
  // Dequantises the rows that are asked for only.
  void look_up(Context& context, std::span<const std::int32_t> ids, float scale, bool add, View y) override;
  void read_rows(Context& context, std::int64_t first, View out) override;
  void write_rows(Context& context, std::int64_t first, ConstView values) override;

  QuantFormat format_at(std::int64_t row) const { return band_at(row).format; }
  // The bytes of a band from a row of it on, for a loader to fill or a writer to copy.
  std::span<std::byte> band_bytes(std::int64_t first_row);
  std::size_t bytes() const { return data_->bytes(); }

 private:
  struct Placed {
    std::int64_t begin, rows;
    QuantFormat format;
    std::int64_t offset, row_bytes;
  };
  const Placed& band_at(std::int64_t row) const;
  // As they are, when all are int8.
  const std::byte* int8_rows(Context& context) override;

  std::vector<Placed> bands_;
  std::shared_ptr<Storage> data_;
};

// Sets rows of a parameter, from `first` on, from rows in a format: the bytes as they are when it is kept in
// that format, else by way of floats.
void write_blocks(Context& context, const Parameter& parameter, QuantFormat format,
                  std::span<const std::byte> rows, std::int64_t first = 0);

}  // namespace lode
