#include "io/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/fail.h"
#include "io/gguf_types.h"

namespace lode {
namespace {

constexpr std::uint64_t kMostFields = 100'000, kMostTensors = 200'000;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 21;  // of an array that is handed out
constexpr std::uint64_t kLeastFieldBytes = 8 + 1 + 4 + 1, kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr std::uint64_t kLongestKey = 65535, kLongestName = 63;
constexpr std::uint32_t kMostDimensions = 4;

bool is_printable(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

std::uint64_t size_of(GgufType type) {
  constexpr std::uint8_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kSizes[static_cast<std::size_t>(type)];
}

std::string_view name_of(GgufType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string type_text(const GgufField& field) {
  return field.type == GgufType::array ? format("array of {}", name_of(field.element))
                                       : std::string(name_of(field.type));
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Reads forward; whatever reaches beyond the end is an error with the place's name.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return bytes_.size() - at_; }
  std::span<const std::byte> take(std::uint64_t size, std::string_view what) {
    if (size > left()) {
      fail(ErrorKind::data, "{}: {} needs {} bytes at byte {}, the file has {} more; cut off or damaged?",
           path_, what, size, at_, left());
    }
    const auto part = bytes_.subspan(at_, size);
    at_ += size;
    return part;
  }
  template <class T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what).data());
  }
  std::string_view text(std::string_view what) {
    const auto part = take(number<std::uint64_t>(what), what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  std::string_view label(std::string_view what, std::uint64_t longest) {
    const std::string_view name = text(what);
    if (!is_printable(name) || name.size() > longest) {
      fail(ErrorKind::data, "{}: {} is no name of 1 to {} printable characters", path_, what, longest);
    }
    return name;
  }
  GgufType type(std::string_view what) {
    const auto number = this->number<std::uint32_t>(what);
    if (number > static_cast<std::uint32_t>(GgufType::f64))
      fail(ErrorKind::data, "{}: {} has the unknown type {}", path_, what, number);
    return static_cast<GgufType>(number);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  std::uint64_t at_ = 0;
};

void check_booleans(std::span<const std::byte> bytes, const std::string& path, std::string_view what) {
  if (std::ranges::any_of(bytes, [](std::byte b) { return b > std::byte{1}; }))
    fail(ErrorKind::data, "{}: {} is neither true nor false", path, what);
}

GgufField read_field(Cursor& cursor, std::span<const std::byte> file, const std::string& path,
                     std::uint64_t index) {
  GgufField field;
  field.key = cursor.label(format("key number {}", index), kLongestKey);
  const std::string what = format("key \"{}\"", field.key);
  field.type = field.element = cursor.type(what);
  if (field.type == GgufType::array) {
    field.element = cursor.type(what);
    if (field.element == GgufType::array) fail(ErrorKind::data, "{}: {} is an array of arrays", path, what);
    field.count = cursor.number<std::uint64_t>(what);
    const std::uint64_t least = field.element == GgufType::text ? 8 : size_of(field.element);
    if (field.count > cursor.left() / least) {
      fail(ErrorKind::data, "{}: {} has {} elements, the file holds {} more bytes; cut off or damaged?", path,
           what, field.count, cursor.left());
    }
  }
  const std::uint64_t begin = cursor.at();
  if (field.element == GgufType::text) {
    for (std::uint64_t i = 0; i < field.count; ++i) cursor.text(what);
  } else {
    cursor.take(field.count * size_of(field.element), what);
  }
  field.bytes = file.subspan(begin, cursor.at() - begin);
  if (field.element == GgufType::boolean) check_booleans(field.bytes, path, what);
  return field;
}

// What a tensor's info says, before its data is found.
struct Declared {
  GgufTensor tensor;
  std::uint64_t offset = 0, size = 0;
};

std::uint64_t data_size(const GgufTensor& tensor, const std::string& path) {
  const GgufBlock* block = find_gguf_block(tensor.type);
  if (block == nullptr)
    fail(ErrorKind::data, "{}: tensor \"{}\" has the unknown type {}", path, tensor.name, tensor.type);
  if (tensor.shape.back() % block->values != 0) {
    fail(ErrorKind::data, "{}: tensor \"{}\": rows of {} values are no whole blocks of {} ({})", path,
         tensor.name, tensor.shape.back(), block->values, block->name);
  }
  std::int64_t values = 1;
  for (const std::int64_t n : tensor.shape) {
    if (__builtin_mul_overflow(values, n, &values))
      fail(ErrorKind::data, "{}: tensor \"{}\": shape {} is too large", path, tensor.name,
           shape_text(tensor.shape));
  }
  std::uint64_t size = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(values / block->values),
                             static_cast<std::uint64_t>(block->bytes), &size)) {
    fail(ErrorKind::data, "{}: tensor \"{}\": shape {} is too large", path, tensor.name,
         shape_text(tensor.shape));
  }
  return size;
}

Declared read_tensor(Cursor& cursor, const std::string& path, std::uint64_t index) {
  Declared declared;
  GgufTensor& tensor = declared.tensor;
  tensor.name = cursor.label(format("tensor number {}", index), kLongestName);
  const std::string what = format("tensor \"{}\"", tensor.name);
  const auto dimensions = cursor.number<std::uint32_t>(what);
  if (dimensions < 1 || dimensions > kMostDimensions)
    fail(ErrorKind::data, "{}: {} has {} dimensions, expected 1 to {}", path, what, dimensions,
         kMostDimensions);
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto n = cursor.number<std::int64_t>(what);
    if (n < 0) fail(ErrorKind::data, "{}: {} has the negative dimension {}", path, what, n);
    tensor.shape.insert(tensor.shape.begin(), n);
  }
  tensor.type = cursor.number<std::uint32_t>(what);
  declared.offset = cursor.number<std::uint64_t>(what);
  declared.size = data_size(tensor, path);
  return declared;
}

void check_magic(Cursor& cursor, const std::string& path) {
  const auto magic = cursor.take(4, "the magic number");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) fail(ErrorKind::data, "{}: not a GGUF file", path);
  const auto version = cursor.number<std::uint32_t>("the version");
  if (version != 0 && (version & 0xffffu) == 0)
    fail(ErrorKind::data, "{}: a big-endian GGUF file; convert it to little-endian", path);
  if (version != 2 && version != 3) {
    fail(ErrorKind::data, "{}: GGUF version {}; versions 2 and 3 are read: convert the model again", path,
         version);
  }
}

// A count of the header, within what the bytes behind it can hold.
std::uint64_t read_count(Cursor& cursor, const std::string& path, std::string_view what, std::uint64_t most,
                         std::uint64_t least_bytes) {
  const auto count = cursor.number<std::int64_t>(what);
  if (count < 0 || static_cast<std::uint64_t>(count) > most)
    fail(ErrorKind::data, "{}: {} is {}, expected 0 to {}", path, what, count, most);
  if (static_cast<std::uint64_t>(count) > cursor.left() / least_bytes)
    fail(ErrorKind::data, "{}: {} is {}, which the file of {} more bytes cannot hold", path, what, count,
         cursor.left());
  return static_cast<std::uint64_t>(count);
}

std::uint64_t padded(std::uint64_t size, std::uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

std::optional<std::int64_t> integer_at(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::u8:
      return load<std::uint8_t>(at);
    case GgufType::i8:
      return load<std::int8_t>(at);
    case GgufType::u16:
      return load<std::uint16_t>(at);
    case GgufType::i16:
      return load<std::int16_t>(at);
    case GgufType::u32:
      return load<std::uint32_t>(at);
    case GgufType::i32:
      return load<std::int32_t>(at);
    case GgufType::i64:
      return load<std::int64_t>(at);
    case GgufType::u64: {
      const auto value = load<std::uint64_t>(at);
      if (value <= INT64_MAX) return static_cast<std::int64_t>(value);
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> number_at(GgufType type, const std::byte* at) {
  if (type == GgufType::f32) return static_cast<double>(load<float>(at));
  if (type == GgufType::f64) return load<double>(at);
  if (const auto value = integer_at(type, at)) return static_cast<double>(*value);
  return std::nullopt;
}

std::string_view text_at(const std::byte* at) {
  return {reinterpret_cast<const char*>(at) + 8, load<std::uint64_t>(at)};
}

[[noreturn]] void fail_type(const std::string& path, const GgufField& field, std::string_view expected) {
  fail(ErrorKind::data, "{}: key \"{}\": expected {}, found {} of type {}", path, field.key, expected,
       GgufFile::shown(field), type_text(field));
}

}  // namespace

std::optional<QuantFormat> GgufTensor::format() const {
  const GgufBlock* block = find_gguf_block(type);
  return block == nullptr ? std::nullopt : block->format;
}

std::string GgufTensor::type_name() const {
  const GgufBlock* block = find_gguf_block(type);
  if (block == nullptr) return lode::format("type {}", type);
  return block->format ? std::string(block->name) : lode::format("type {} ({})", type, block->name);
}

// One file: where its lists begin, and its share of the whole.
struct GgufFile::Part {
  std::string path;
  std::span<const std::byte> bytes;
  std::uint64_t fields = 0, tensors = 0;
  bool first = true;
};

void GgufFile::read_part(const Part& part) {
  Cursor cursor(part.bytes, part.path);
  check_magic(cursor, part.path);
  const std::uint64_t tensors =
      read_count(cursor, part.path, "the number of tensors", kMostTensors, kLeastTensorBytes);
  const std::uint64_t fields =
      read_count(cursor, part.path, "the number of keys", kMostFields, kLeastFieldBytes);
  std::uint64_t alignment = 32;
  for (std::uint64_t i = 0; i < fields; ++i) {
    const GgufField field = read_field(cursor, part.bytes, part.path, i);
    if (field.key == "general.alignment") {
      if (field.type != GgufType::u32) fail_type(part.path, field, "u32");
      alignment = load<std::uint32_t>(field.bytes.data());
      if (!std::has_single_bit(alignment))
        fail(ErrorKind::data, "{}: general.alignment is {}, expected a power of two", part.path, alignment);
    }
    if (part.first) fields_.push_back(field);
  }
  if (tensors_.size() + tensors > kMostTensors)
    fail(ErrorKind::data, "{}: more than {} tensors", path_, kMostTensors);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;  // offset, size
  const std::size_t begin = tensors_.size();
  for (std::uint64_t i = 0; i < tensors; ++i) {
    Declared declared = read_tensor(cursor, part.path, i);
    places.emplace_back(declared.offset, declared.size);
    tensors_.push_back(std::move(declared.tensor));
  }
  const std::uint64_t data = padded(cursor.at(), alignment);
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto [offset, size] = places[i];
    GgufTensor& tensor = tensors_[begin + i];
    if (offset != end) {
      fail(ErrorKind::data, "{}: tensor \"{}\" has the offset {}, the one before it ends at {}", part.path,
           tensor.name, offset, end);
    }
    if (data > part.bytes.size() || offset > part.bytes.size() - data ||
        size > part.bytes.size() - data - offset) {
      fail(ErrorKind::data, "{}: tensor \"{}\" of {} bytes reaches beyond the file of {}; cut off?",
           part.path, tensor.name, size, part.bytes.size());
    }
    tensor.bytes = part.bytes.subspan(data + offset, size);
    end = padded(offset + size, alignment);
  }
}

GgufFile::GgufFile(FileSystem& files, const std::string& path) : path_(path) {
  const auto open = [&](const std::string& name, bool first) {
    maps_.push_back(files.map(name));
    total_bytes_ += maps_.back()->bytes().size();
    read_part({.path = name, .bytes = maps_.back()->bytes(), .first = first});
  };
  open(path, true);
  index_names();
  const std::int64_t parts = integer("split.count").value_or(1);
  if (parts <= 1) return;
  constexpr std::int64_t kMostParts = 1000;
  const std::string ending = format("-00001-of-{:05}.gguf", parts);
  if (parts > kMostParts || integer("split.no").value_or(0) != 0 || !path.ends_with(ending)) {
    fail(ErrorKind::data,
         "{}: part {} of a model of {} parts; name its first part, whose name ends in \"{}\"", path,
         integer("split.no").value_or(0) + 1, parts, ending);
  }
  for (std::int64_t i = 2; i <= parts; ++i) {
    open(path.substr(0, path.size() - ending.size()) + format("-{:05}-of-{:05}.gguf", i, parts), false);
  }
  index_names();
  const std::int64_t expected =
      integer("split.tensors.count").value_or(static_cast<std::int64_t>(tensors_.size()));
  if (expected != static_cast<std::int64_t>(tensors_.size())) {
    fail(ErrorKind::data, "{}: split.tensors.count is {}, the {} parts hold {} tensors", path, expected,
         parts, tensors_.size());
  }
}

void GgufFile::index_names() {
  const auto index = [](std::vector<std::uint32_t>& order, std::size_t size, auto name) {
    order.resize(size);
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::sort(order, {}, name);
    const auto twice = std::ranges::adjacent_find(order, {}, name);
    return twice == order.end() ? std::string_view() : name(*twice);
  };
  if (const auto key = index(by_key_, fields_.size(), [&](std::uint32_t i) { return fields_[i].key; });
      !key.empty()) {
    fail(ErrorKind::data, "{}: the key \"{}\" is there twice", path_, key);
  }
  if (const auto name = index(by_name_, tensors_.size(), [&](std::uint32_t i) { return tensors_[i].name; });
      !name.empty()) {
    fail(ErrorKind::data, "{}: the tensor \"{}\" is there twice", path_, name);
  }
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto at =
      std::ranges::lower_bound(by_name_, name, {}, [&](std::uint32_t i) { return tensors_[i].name; });
  return at == by_name_.end() || tensors_[*at].name != name ? nullptr : &tensors_[*at];
}

void GgufFile::give_back(std::span<const std::byte> part) const {
  for (const auto& map : maps_) {
    const std::span<const std::byte> whole = map->bytes();
    if (std::less_equal<>()(whole.data(), part.data()) &&
        std::less_equal<>()(part.data() + part.size(), whole.data() + whole.size()))
      return map->give_back(part);
  }
}

const GgufField* GgufFile::find_field(std::string_view key) const {
  const auto at = std::ranges::lower_bound(by_key_, key, {}, [&](std::uint32_t i) { return fields_[i].key; });
  return at == by_key_.end() || fields_[*at].key != key ? nullptr : &fields_[*at];
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  const GgufField* field = find_field(key);
  if (field == nullptr) return std::nullopt;
  if (field->type != GgufType::text) fail_type(path_, *field, "a string");
  return text_at(field->bytes.data());
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufField* field = find_field(key);
  if (field == nullptr) return std::nullopt;
  const auto value = integer_at(field->type, field->bytes.data());
  if (!value) fail_type(path_, *field, "an integer");
  return value;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufField* field = find_field(key);
  if (field == nullptr) return std::nullopt;
  const auto value = number_at(field->type, field->bytes.data());
  if (!value || !std::isfinite(*value)) fail_type(path_, *field, "a number");
  return value;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufField* field = find_field(key);
  if (field == nullptr) return std::nullopt;
  if (field->type != GgufType::boolean) fail_type(path_, *field, "true or false");
  return field->bytes[0] == std::byte{1};
}

const GgufField& GgufFile::array(const GgufField& field, std::string_view what) const {
  if (field.type != GgufType::array) fail_type(path_, field, what);
  if (field.count > kMostElements)
    fail(ErrorKind::data, "{}: key \"{}\": {} elements, at most {} are read", path_, field.key, field.count,
         kMostElements);
  return field;
}

std::vector<std::string_view> GgufFile::texts(std::string_view key) const {
  std::vector<std::string_view> values;
  const GgufField* field = find_field(key);
  if (field == nullptr) return values;
  if (array(*field, "an array of strings").element != GgufType::text)
    fail_type(path_, *field, "an array of strings");
  values.reserve(field->count);
  const std::byte* at = field->bytes.data();
  for (std::uint64_t i = 0; i < field->count; ++i) {
    values.push_back(text_at(at));
    at += 8 + values.back().size();
  }
  return values;
}

std::vector<std::int64_t> GgufFile::integers(std::string_view key) const {
  std::vector<std::int64_t> values;
  const GgufField* field = find_field(key);
  if (field == nullptr) return values;
  const GgufType type = array(*field, "an array of integers").element;
  values.reserve(field->count);
  for (std::uint64_t i = 0; i < field->count; ++i) {
    const auto value = integer_at(type, field->bytes.data() + i * size_of(type));
    if (!value) fail_type(path_, *field, "an array of integers");
    values.push_back(*value);
  }
  return values;
}

std::vector<double> GgufFile::numbers(std::string_view key) const {
  std::vector<double> values;
  const GgufField* field = find_field(key);
  if (field == nullptr) return values;
  const GgufType type = array(*field, "an array of numbers").element;
  values.reserve(field->count);
  for (std::uint64_t i = 0; i < field->count; ++i) {
    const auto value = number_at(type, field->bytes.data() + i * size_of(type));
    if (!value) fail_type(path_, *field, "an array of numbers");
    values.push_back(*value);
  }
  return values;
}

std::string GgufFile::shown(const GgufField& field, std::size_t most) {
  const auto one = [&](const std::byte* at) {
    if (field.element == GgufType::boolean) return std::string(*at == std::byte{1} ? "true" : "false");
    if (const auto value = integer_at(field.element, at)) return format("{}", *value);
    if (field.element == GgufType::u64) return format("{}", load<std::uint64_t>(at));
    if (field.element != GgufType::text) return format("{}", *number_at(field.element, at));
    const std::string_view text = text_at(at);
    std::string out = "\"";
    for (const char c : text.substr(0, most)) out += c >= 0 && c < ' ' ? ' ' : c;
    return out + (text.size() > most ? "...\"" : "\"");
  };
  if (field.type != GgufType::array) return one(field.bytes.data());
  std::string out = "[";
  const std::byte* at = field.bytes.data();
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(field.count, most); ++i) {
    out += (i == 0 ? "" : ", ") + one(at);
    at += field.element == GgufType::text ? 8 + text_at(at).size() : size_of(field.element);
  }
  return out + (field.count > most ? format(", ... {} elements]", field.count) : "]");
}

}  // namespace lode
