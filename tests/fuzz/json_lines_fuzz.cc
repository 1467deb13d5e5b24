#include "data/records.h"
#include "memory_file.h"

// The first byte chooses the kind of file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool csv = data[0] % 4 == 0, skip = data[0] % 8 >= 4;
  return lode::read_or_refuse([&] {
    const lode::SourceFile source{"f", csv ? lode::FileFormat::csv : lode::FileFormat::json};
    lode::MemoryFile files("f", data + 1, size - 1);
    lode::ReadOptions options;
    options.bad_records = skip ? lode::BadRecords::skip : lode::BadRecords::fail;
    options.max_record_bytes = 4096;
    lode::ReadReport report;
    const auto reader = lode::open_records(files, source, options);
    for (lode::RawRecord record; reader->next(record);) {
      lode::Json json;
      lode::decode_json(source, options, record, json, report);
    }
    report.lines();
  });
}
