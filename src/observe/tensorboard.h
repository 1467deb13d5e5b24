// TensorBoard event files, as its own reader accepts them: TFRecord framing with masked CRC-32C around Event
// messages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/log.h"
#include "observe/metrics.h"

namespace lode {

std::uint32_t crc32c(std::string_view data);         // Castagnoli
std::uint32_t masked_crc32c(std::string_view data);  // as TFRecord stores it
std::string tfrecord(std::string_view data);         // one record with its length and checksums

// Event messages, not framed. wall_time: seconds since 1970.
std::string version_event(double wall_time);
std::string session_start_event(double wall_time, std::int64_t step);
std::string scalar_event(double wall_time, std::int64_t step, std::string_view tag, float value);
std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view markdown);

// Writes one event file (or several after disk failures: TensorBoard merges those of a folder in name order).
// Events are kept in memory until flush(). A failing disk does not end the run: what could not be written is
// dropped and counted, with one warning, and the next flush begins a new file, because readers stop at a
// damaged record.
class EventWriter {
 public:
  // resumed: the step of the checkpoint a run goes on from; TensorBoard then drops what earlier files hold
  // beyond it.
  EventWriter(FileSystem& files, std::string directory, Log& log, std::optional<std::int64_t> resumed = {});
  ~EventWriter();  // flushes
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  void scalar(std::string_view tag, std::int64_t step, double value);
  void text(std::string_view tag, std::int64_t step, std::string_view markdown);
  // The run's standard tags: train/loss, train/learning_rate, ...; eval/<set>/loss, ...; sample.
  void write(const StepMetrics& m);
  void write(const EvalMetrics& m);
  void write(const SampleText& m);
  void flush();
  std::int64_t lost() const { return lost_; }  // events

 private:
  void open();
  void add(std::string event);

  FileSystem& files_;
  std::string directory_, path_;
  Log& log_;
  std::unique_ptr<OutputFile> file_;
  std::optional<std::int64_t> resumed_;
  std::string buffer_;
  std::int64_t buffered_ = 0, lost_ = 0;
  int number_ = 0;
  bool warned_ = false;
};

}  // namespace lode
