#include "observe/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <protozero/pbf_builder.hpp>

#include "core/fail.h"
#include "observe/display.h"

namespace lode {
namespace {

enum class EventField : protozero::pbf_tag_type {
  wall_time = 1,
  step = 2,
  file_version = 3,
  summary = 5,
  session_log = 7
};
enum class SessionField : protozero::pbf_tag_type { status = 1 };
enum class SummaryField : protozero::pbf_tag_type { value = 1 };
enum class ValueField : protozero::pbf_tag_type { tag = 1, simple_value = 2, tensor = 8, metadata = 9 };
enum class TensorField : protozero::pbf_tag_type { dtype = 1, shape = 2, string_val = 8 };
enum class ShapeField : protozero::pbf_tag_type { dim = 2 };
enum class DimField : protozero::pbf_tag_type { size = 1 };
enum class MetadataField : protozero::pbf_tag_type { plugin_data = 1 };
enum class PluginField : protozero::pbf_tag_type { plugin_name = 1 };

template <class Field>
using Builder = protozero::pbf_builder<Field>;

constexpr int kSessionStart = 1;
constexpr int kDtypeString = 7;
constexpr std::size_t kFlushBytes = 1 << 20;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78U : 0U);
    table[i] = value;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

template <class Integer>
void put_little_endian(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof(value); ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

double wall_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  return name.data();
}

Builder<EventField> begin_event(std::string& out, double time, std::int64_t step) {
  Builder<EventField> event(out);
  event.add_double(EventField::wall_time, time);
  if (step != 0) event.add_int64(EventField::step, step);
  return event;
}

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : data) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view data) {
  return std::rotr(crc32c(data), 15) + 0xA282EAD8U;
}

std::string tfrecord(std::string_view data) {
  std::string out;
  out.reserve(data.size() + 16);
  put_little_endian(out, std::uint64_t{data.size()});
  put_little_endian(out, masked_crc32c(out));
  out += data;
  put_little_endian(out, masked_crc32c(data));
  return out;
}

std::string version_event(double wall_time) {
  std::string out;
  begin_event(out, wall_time, 0).add_string(EventField::file_version, "brain.Event:2");
  return out;
}

std::string session_start_event(double wall_time, std::int64_t step) {
  std::string out;
  auto event = begin_event(out, wall_time, step);
  Builder<SessionField>(event, EventField::session_log).add_enum(SessionField::status, kSessionStart);
  return out;
}

std::string scalar_event(double wall_time, std::int64_t step, std::string_view tag, float value) {
  std::string out;
  auto event = begin_event(out, wall_time, step);
  Builder<SummaryField> summary(event, EventField::summary);
  Builder<ValueField> entry(summary, SummaryField::value);
  entry.add_string(ValueField::tag, tag.data(), tag.size());
  entry.add_float(ValueField::simple_value, value);
  return out;
}

std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view markdown) {
  const std::string full_tag = std::string(tag) + "/text_summary";
  const std::string text = repair_utf8(markdown);
  std::string out;
  auto event = begin_event(out, wall_time, step);
  Builder<SummaryField> summary(event, EventField::summary);
  Builder<ValueField> entry(summary, SummaryField::value);
  entry.add_string(ValueField::tag, full_tag);
  {
    Builder<TensorField> tensor(entry, ValueField::tensor);
    tensor.add_enum(TensorField::dtype, kDtypeString);
    {
      Builder<ShapeField> shape(tensor, TensorField::shape);
      Builder<DimField>(shape, ShapeField::dim).add_int64(DimField::size, 1);
    }
    tensor.add_string(TensorField::string_val, text);
  }
  Builder<MetadataField> metadata(entry, ValueField::metadata);
  Builder<PluginField>(metadata, MetadataField::plugin_data).add_string(PluginField::plugin_name, "text");
  return out;
}

EventWriter::EventWriter(FileSystem& files, std::string directory, Log& log,
                         std::optional<std::int64_t> resumed)
    : files_(files), directory_(std::move(directory)), log_(log), resumed_(resumed) {}

EventWriter::~EventWriter() {
  flush();
}

void EventWriter::open() {
  const double now = wall_time();
  do {
    const std::string name = format("events.out.tfevents.{:010d}.{}.{}.{}", static_cast<std::int64_t>(now),
                                    host_name(), static_cast<std::int64_t>(::getpid()), number_++);
    path_ = join_path(directory_, name);
  } while (files_.exists(path_));
  file_ = files_.create(path_);
  std::string start = tfrecord(version_event(now));
  // TensorBoard drops what it has from this step on.
  if (resumed_) start += tfrecord(session_start_event(now, *resumed_ + 1));
  file_->write(start);
  resumed_.reset();
}

void EventWriter::add(std::string event) {
  buffer_ += tfrecord(event);
  ++buffered_;
  if (buffer_.size() > kFlushBytes) flush();
}

void EventWriter::flush() {
  if (buffered_ == 0) return;
  try {
    if (!file_) open();
    file_->write(buffer_);
    warned_ = false;
  } catch (const Error& error) {
    lost_ += buffered_;
    file_.reset();
    if (!warned_)
      log_.warning("TensorBoard events are lost until the disk takes them again: {}", error.what());
    warned_ = true;
  }
  buffer_.clear();
  buffered_ = 0;
}

void EventWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  if (std::isfinite(value)) add(scalar_event(wall_time(), step, tag, static_cast<float>(value)));
}

void EventWriter::text(std::string_view tag, std::int64_t step, std::string_view markdown) {
  add(text_event(wall_time(), step, tag, markdown));
}

void EventWriter::write(const StepMetrics& m) {
  scalar("train/loss", m.step, m.loss);
  scalar("train/learning_rate", m.step, m.learning_rate);
  scalar("train/grad_norm", m.step, m.grad_norm);
  scalar("train/epoch", m.step, m.epoch);
  scalar("speed/tokens_per_second", m.step, m.tokens_per_second);
  scalar("speed/samples_per_second", m.step, m.samples_per_second);
  scalar("speed/mfu", m.step, m.mfu);
  scalar("speed/cores", m.step, m.cores);
  scalar("speed/data_wait_seconds", m.step, m.data_wait);
  constexpr double kMiB = 1 << 20;
  if (m.memory > 0) scalar("memory/resident_mib", m.step, static_cast<double>(m.memory) / kMiB);
  if (m.accounted > 0) scalar("memory/accounted_mib", m.step, static_cast<double>(m.accounted) / kMiB);
}

void EventWriter::write(const EvalMetrics& m) {
  const std::string prefix = "eval/" + repair_utf8(m.set) + "/";
  scalar(prefix + "loss", m.step, m.loss);
  scalar(prefix + "perplexity", m.step, m.perplexity);
  scalar(prefix + "bits_per_byte", m.step, m.bits_per_byte);
  scalar(prefix + "token_accuracy", m.step, m.token_accuracy);
}

void EventWriter::write(const SampleText& m) {
  // Indented by four spaces, Markdown shows text as it is.
  std::string markdown = "    ";
  for (const char c : m.prompt + m.text) {
    markdown += c;
    if (c == '\n') markdown += "    ";
  }
  text("sample", m.step, markdown);
}

}  // namespace lode
