// Filters on text and single values; those on lists are in jinja_list_filters.cc.
#include "text/jinja_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

namespace lode::jinja {
namespace {

using Call = Value (*)(Interpreter&, const Value&, Arguments&);

Value filter_tojson(Interpreter& in, const Value& value, Arguments& arguments) {
  DumpOptions options;
  const auto flag = [&](std::size_t position, std::string_view name) {
    const Value* given = arguments.get(position, name);
    return given != nullptr && given->truthy();
  };
  options.ensure_ascii = flag(0, "ensure_ascii");
  options.sort_keys = flag(3, "sort_keys");
  if (const Value* indent = arguments.get(1, "indent"); indent != nullptr && !indent->is_none()) {
    options.indented = true;
    options.item_separator.assign(1, ',');
    if (indent->is_string()) {
      options.indent = indent->text().bytes();
    } else {
      const std::int64_t width = expect_integer(in, indent, "the indent of tojson");
      options.indent.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(width, 0, 100)), ' ');
    }
  }
  if (const Value* separators = arguments.get(2, "separators");
      separators != nullptr && !separators->is_none()) {
    const std::vector<Value> both = in.iterate(*separators);
    if (both.size() != 2) in.error("the separators of tojson must be two strings");
    options.item_separator = expect_text(in, &both[0], "the separators of tojson").bytes();
    options.key_separator = expect_text(in, &both[1], "the separators of tojson").bytes();
  }
  Text text;
  const std::string problem = append_json(value, options, text);
  if (!problem.empty()) in.error("{} has no JSON form", problem);
  return in.make(std::move(text));
}

Value filter_trim(Interpreter& in, const Value& value, Arguments& arguments) {
  const Text text = in.to_text(value);
  const Value* set = arguments.get(0, "chars");
  const std::string* characters =
      set == nullptr || set->is_none() ? nullptr : &expect_text(in, set, "the characters to trim").bytes();
  in.scan(text.size() * (characters != nullptr ? characters->size() : 1));
  const Range kept = strip_range(text.bytes(), true, true, characters);
  return in.make(text.slice(kept.begin, kept.end));
}

Value filter_string(Interpreter& in, const Value& value, Arguments&) {
  return in.make(in.to_text(value));
}

Value filter_default(Interpreter& in, const Value& value, Arguments& arguments) {
  const Value* boolean = arguments.get(1, "boolean");
  const bool falsy = boolean != nullptr && boolean->truthy() && !value.truthy();
  if (!value.is_undefined() && !falsy) return value;
  const Value* replacement = arguments.get(0, "default_value");
  return replacement != nullptr ? *replacement : in.make(Text());
}

Value filter_lower(Interpreter& in, const Value& value, Arguments&) {
  return in.make(change_case(in.to_text(value), false));
}

Value filter_upper(Interpreter& in, const Value& value, Arguments&) {
  return in.make(change_case(in.to_text(value), true));
}

Value filter_capitalize(Interpreter& in, const Value& value, Arguments&) {
  return in.make(change_case(change_case(in.to_text(value), false), true, 0, 1));
}

Value filter_title(Interpreter& in, const Value& value, Arguments&) {
  const Text text = in.to_text(value);
  Text result;
  bool begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = read_character(text.bytes(), at);
    result.append(change_case(text.slice(start, at), begins));
    begins = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  }
  return in.make(std::move(result));
}

Value filter_indent(Interpreter& in, const Value& value, Arguments& arguments) {
  Text text = in.to_text(value);
  std::string indent(4, ' ');
  if (const Value* width = arguments.get(0, "width")) {
    if (width->is_string()) {
      indent = width->text().bytes();
    } else {
      const std::int64_t count = expect_integer(in, width, "the width of indent");
      indent.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, 1000)), ' ');
    }
  }
  const Value* first = arguments.get(1, "first");
  const Value* blank = arguments.get(2, "blank");
  text.append("\n");
  const std::vector<Range> lines = split_lines(text.bytes(), false);
  in.reserve(lines.size() * (indent.size() + 1) + text.memory());
  Text result;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.append("\n");
    const bool empty = lines[i].begin == lines[i].end && (blank == nullptr || !blank->truthy());
    if (i == 0 ? first != nullptr && first->truthy() : !empty) result.append(indent);
    result.append(text, lines[i].begin, lines[i].end);
  }
  return result;
}

Value filter_replace(Interpreter& in, const Value& value, Arguments& arguments) {
  const Text text = in.to_text(value);
  const Value* from = arguments.get(0, "old");
  const Value* to = arguments.get(1, "new");
  const Value* count = arguments.get(2, "count");
  if (from == nullptr || to == nullptr) in.error("replace needs what to replace and by what");
  const bool all = count == nullptr || count->is_none();
  return replace_text(in, text, in.to_text(*from), in.to_text(*to),
                      all ? -1 : expect_integer(in, count, "the count of replace"));
}

Value filter_int(Interpreter&, const Value& value, Arguments& arguments) {
  const Value* fallback = arguments.get(0, "default");
  if (value.is_integral()) return value.integer();
  double number = NAN;
  if (value.is<double>()) number = value.number();
  if (value.is_string()) {
    const Range kept = strip_range(value.text().bytes(), true, true);
    const std::string_view text =
        std::string_view(value.text().bytes()).substr(kept.begin, kept.end - kept.begin);
    std::int64_t integer = 0;
    const auto whole = std::from_chars(text.data(), text.data() + text.size(), integer);
    if (whole.ec == std::errc() && whole.ptr == text.data() + text.size()) return integer;
    const auto real = std::from_chars(text.data(), text.data() + text.size(), number);
    if (real.ec != std::errc() || real.ptr != text.data() + text.size()) number = NAN;
  }
  if (std::isfinite(number) && std::abs(number) < 9e18) return static_cast<std::int64_t>(number);
  return fallback != nullptr ? *fallback : Value(std::int64_t{0});
}

Value filter_float(Interpreter&, const Value& value, Arguments& arguments) {
  const Value* fallback = arguments.get(0, "default");
  if (value.is_number()) return value.number();
  if (value.is_string()) {
    const Range kept = strip_range(value.text().bytes(), true, true);
    const std::string_view text =
        std::string_view(value.text().bytes()).substr(kept.begin, kept.end - kept.begin);
    double number = 0;
    const auto real = std::from_chars(text.data(), text.data() + text.size(), number);
    if (real.ec == std::errc() && real.ptr == text.data() + text.size()) return number;
  }
  return fallback != nullptr ? *fallback : Value(0.0);
}

Value filter_abs(Interpreter& in, const Value& value, Arguments&) {
  if (!value.is_number()) in.error("abs needs a number, not {}", value.type_name());
  if (value.is<double>()) return std::abs(value.number());
  return value.integer() < 0 ? in.binary("-", std::int64_t{0}, value) : Value(value.integer());
}

Value filter_escape(Interpreter& in, const Value& value, Arguments&) {
  if (value.is_string() && value.text().markup()) return value;
  const Text text = in.to_text(value);
  in.reserve(text.memory() * 5);
  Text escaped = escape_html(text);
  escaped.set_markup();
  return escaped;
}

Value filter_safe(Interpreter& in, const Value& value, Arguments&) {
  Text text = in.to_text(value);
  text.set_markup();
  return in.make(std::move(text));
}

Value filter_format(Interpreter& in, const Value& value, Arguments& arguments) {
  return in.binary("%", in.make(in.to_text(value)), in.make_list(arguments.positional, List::Shape::tuple));
}

Value filter_attr(Interpreter& in, const Value& value, Arguments& arguments) {
  return in.get_attribute(value, expect_text(in, arguments.get(0, "name"), "the name for attr").bytes());
}

}  // namespace

Text escape_html(const Text& text) {
  Text result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    switch (text.bytes()[at]) {
      case '&':
        result.append("&amp;", text.label_at(at));
        break;
      case '<':
        result.append("&lt;", text.label_at(at));
        break;
      case '>':
        result.append("&gt;", text.label_at(at));
        break;
      case '\'':
        result.append("&#39;", text.label_at(at));
        break;
      case '"':
        result.append("&#34;", text.label_at(at));
        break;
      default:
        result.append(text, at, at + 1);
    }
  }
  return result;
}

const Text& expect_text(Interpreter& interpreter, const Value* value, std::string_view what) {
  if (value == nullptr) interpreter.error("{} is missing", what);
  if (!value->is_string()) interpreter.error("{} must be a str, not {}", what, value->type_name());
  return value->text();
}

std::int64_t expect_integer(Interpreter& interpreter, const Value* value, std::string_view what) {
  if (value == nullptr) interpreter.error("{} is missing", what);
  if (!value->is_integral()) interpreter.error("{} must be an int, not {}", what, value->type_name());
  return value->integer();
}

Value apply_filter(Interpreter& interpreter, const std::string& name, const Value& input,
                   Arguments& arguments) {
  static const std::map<std::string_view, Call> kFilters = {
      {"tojson", filter_tojson},
      {"trim", filter_trim},
      {"string", filter_string},
      {"safe", filter_safe},
      {"format", filter_format},
      {"default", filter_default},
      {"d", filter_default},
      {"lower", filter_lower},
      {"upper", filter_upper},
      {"capitalize", filter_capitalize},
      {"title", filter_title},
      {"indent", filter_indent},
      {"replace", filter_replace},
      {"int", filter_int},
      {"float", filter_float},
      {"abs", filter_abs},
      {"e", filter_escape},
      {"escape", filter_escape},
      {"attr", filter_attr},
      {"length", filter_length},
      {"count", filter_length},
      {"items", filter_items},
      {"join", filter_join},
      {"list", filter_list},
      {"first", filter_first},
      {"last", filter_last},
      {"reverse", filter_reverse},
      {"map", filter_map},
      {"select", filter_select},
      {"reject", filter_reject},
      {"selectattr", filter_selectattr},
      {"rejectattr", filter_rejectattr},
      {"sort", filter_sort},
      {"dictsort", filter_dictsort},
      {"unique", filter_unique},
      {"sum", filter_sum},
      {"min", filter_min},
      {"max", filter_max},
  };
  const auto filter = kFilters.find(name);
  if (filter == kFilters.end()) interpreter.error("no filter is named \"{}\"", name);
  return filter->second(interpreter, input, arguments);
}

}  // namespace lode::jinja
