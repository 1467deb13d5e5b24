// Values as text: Python's repr and json.dumps.
#include <algorithm>

#include "core/format.h"
#include "text/jinja_value.h"

namespace lode::jinja {
namespace {

// Appends `source` with each character that `escape` gives a replacement for replaced by it; labels are kept.
template <class Escape>
void append_escaped(const Text& source, Text& out, Escape escape) {
  const std::string& bytes = source.bytes();
  std::size_t pending = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t start = at;
    const char32_t c = read_character(bytes, at);
    const std::string escaped = escape(c);
    if (escaped.empty()) continue;
    out.append(source, pending, start);
    out.append(escaped, source.label_at(start));
    pending = at;
  }
  out.append(source, pending, bytes.size());
}

std::string hex(char32_t c, int digits) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) result += kHex[(c >> shift) & 15];
  return result;
}

void append_string_repr(const Text& text, Text& out) {
  const bool doubled =
      text.bytes().find('\'') != std::string::npos && text.bytes().find('"') == std::string::npos;
  const char quote = doubled ? '"' : '\'';
  out.append(std::string_view(&quote, 1));
  append_escaped(text, out, [quote](char32_t c) -> std::string {
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (c == '\\' || c == static_cast<char32_t>(quote)) return {'\\', static_cast<char>(c)};
    if (is_printable(c)) return {};
    if (c < 0x100) return "\\x" + hex(c, 2);
    return c < 0x10000 ? "\\u" + hex(c, 4) : "\\U" + hex(c, 8);
  });
  out.append(std::string_view(&quote, 1));
}

std::string json_escape(char32_t c, bool ensure_ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
    default:
      break;
  }
  if (c < 0x20) return "\\u" + hex(c, 4);
  if (!ensure_ascii || c < 0x7F) return {};
  if (c < 0x10000) return "\\u" + hex(c, 4);
  const char32_t rest = c - 0x10000;
  return "\\u" + hex(0xD800 + (rest >> 10), 4) + "\\u" + hex(0xDC00 + (rest & 0x3FF), 4);
}

void append_json_string(const Text& text, bool ensure_ascii, Text& out) {
  out.append("\"");
  append_escaped(text, out, [ensure_ascii](char32_t c) { return json_escape(c, ensure_ascii); });
  out.append("\"");
}

std::string json_number(double value) {
  const std::string text = repr_float(value);
  if (text == "nan") return "NaN";
  if (text == "inf") return "Infinity";
  return text == "-inf" ? "-Infinity" : text;
}

void new_line(const DumpOptions& options, int level, Text& out) {
  if (!options.indented) return;
  out.append("\n");
  for (int i = 0; i < level; ++i) out.append(options.indent);
}

void append_separator(const DumpOptions& options, bool first, int level, Text& out) {
  if (!first) out.append(options.item_separator);
  new_line(options, level, out);
}

std::string append_key(const Value& key, const DumpOptions& options, Text& out) {
  if (key.is_string()) {
    append_json_string(key.text(), options.ensure_ascii, out);
    return {};
  }
  if (!key.is_number() && !key.is_none()) return std::string(key.type_name());
  out.append("\"");
  const std::string error = append_json(key, options, out);
  out.append("\"");
  return error;
}

std::string append_json_dict(const Dict& dict, const DumpOptions& options, Text& out, int level) {
  std::vector<const std::pair<Value, Value>*> items;
  for (const auto& item : dict.items) items.push_back(&item);
  if (options.sort_keys) {
    for (const auto* item : items) {
      if (!comparable(items[0]->first, item->first)) return "a dict with keys of different types";
    }
    std::ranges::stable_sort(items, [](auto* a, auto* b) { return compare(a->first, b->first) < 0; });
  }
  out.append("{");
  for (std::size_t i = 0; i < items.size(); ++i) {
    append_separator(options, i == 0, level + 1, out);
    if (std::string error = append_key(items[i]->first, options, out); !error.empty()) return error;
    out.append(options.key_separator);
    if (std::string error = append_json(items[i]->second, options, out, level + 1); !error.empty())
      return error;
  }
  if (!items.empty()) new_line(options, level, out);
  out.append("}");
  return {};
}

std::string append_json_list(const List& list, const DumpOptions& options, Text& out, int level) {
  if (list.shape == List::Shape::generator) return "generator";
  out.append("[");
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    append_separator(options, i == 0, level + 1, out);
    if (std::string error = append_json(list.items[i], options, out, level + 1); !error.empty()) return error;
  }
  if (!list.items.empty()) new_line(options, level, out);
  out.append("]");
  return {};
}

void append_list_repr(const List& list, Text& out, bool& ok) {
  const bool tuple = list.shape == List::Shape::tuple;
  ok = ok && list.shape != List::Shape::generator;
  out.append(tuple ? "(" : "[");
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(list.items[i], out, ok);
  }
  if (tuple && list.items.size() == 1) out.append(",");
  out.append(tuple ? ")" : "]");
}

}  // namespace

void append_repr(const Value& value, Text& out, bool& ok) {
  if (value.is_undefined()) {
    out.append("Undefined");
  } else if (value.is_none()) {
    out.append("None");
  } else if (value.is<bool>()) {
    out.append(value.truthy() ? "True" : "False");
  } else if (value.is_int()) {
    out.append(std::to_string(value.integer()));
  } else if (value.is<double>()) {
    out.append(repr_float(value.number()));
  } else if (value.is_string()) {
    append_string_repr(value.text(), out);
  } else if (value.is_list()) {
    append_list_repr(value.list(), out, ok);
  } else if (value.is_dict()) {
    out.append("{");
    bool first = true;
    for (const auto& [key, item] : value.dict().items) {
      if (!first) out.append(", ");
      first = false;
      append_repr(key, out, ok);
      out.append(": ");
      append_repr(item, out, ok);
    }
    out.append("}");
  } else {
    ok = false;
  }
}

std::string append_json(const Value& value, const DumpOptions& options, Text& out, int level) {
  if (value.is_none()) {
    out.append("null");
  } else if (value.is<bool>()) {
    out.append(value.truthy() ? "true" : "false");
  } else if (value.is_int()) {
    out.append(std::to_string(value.integer()));
  } else if (value.is<double>()) {
    out.append(json_number(value.number()));
  } else if (value.is_string()) {
    append_json_string(value.text(), options.ensure_ascii, out);
  } else if (value.is_list()) {
    return append_json_list(value.list(), options, out, level);
  } else if (value.is_dict()) {
    return append_json_dict(value.dict(), options, out, level);
  } else {
    return std::string(value.type_name());
  }
  return {};
}

}  // namespace lode::jinja
