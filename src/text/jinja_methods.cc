// Methods of str, dict and list that templates may call, all without side effects.
#include <algorithm>
#include <map>

#include "text/jinja_filters.h"
#include "text/unicode.h"

namespace lode::jinja {
namespace {

using Call = Value (*)(Interpreter&, const Value&, Arguments&);
using Table = std::map<std::string_view, Call>;

const std::string* strip_set(Interpreter& in, Arguments& arguments) {
  const Value* set = arguments.get(0, "chars");
  return set == nullptr || set->is_none() ? nullptr
                                          : &expect_text(in, set, "the characters to strip").bytes();
}

Value strip(Interpreter& in, const Value& self, Arguments& arguments, bool left, bool right) {
  const std::string* set = strip_set(in, arguments);
  in.scan(self.text().size() * (set != nullptr ? set->size() : 1));
  const Range kept = strip_range(self.text().bytes(), left, right, set);
  return in.make(self.text().slice(kept.begin, kept.end));
}

Value str_strip(Interpreter& in, const Value& self, Arguments& arguments) {
  return strip(in, self, arguments, true, true);
}
Value str_lstrip(Interpreter& in, const Value& self, Arguments& arguments) {
  return strip(in, self, arguments, true, false);
}
Value str_rstrip(Interpreter& in, const Value& self, Arguments& arguments) {
  return strip(in, self, arguments, false, true);
}

// Words between white space, at most `limit` cuts (negative: all), from the left or the right.
std::vector<Range> split_words(std::string_view text, std::int64_t limit, bool right) {
  std::vector<Range> parts;
  Range rest = strip_range(text, !right, right);
  while (rest.begin < rest.end) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) {
      parts.push_back(rest);  // with the white space of its far side
      break;
    }
    if (right) {
      std::size_t begin = rest.end;
      while (begin > rest.begin) {
        const Range kept = strip_range(text.substr(rest.begin, begin - rest.begin), false, true);
        if (kept.end != begin - rest.begin) break;
        --begin;
        while (begin > rest.begin && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
      }
      parts.push_back({begin, rest.end});
      rest.end = rest.begin + strip_range(text.substr(rest.begin, begin - rest.begin), false, true).end;
    } else {
      std::size_t end = rest.begin;
      for (std::size_t next = end; next < rest.end; end = next) {
        if (is_space(read_character(text, next))) break;
      }
      parts.push_back({rest.begin, end});
      rest.begin = end + strip_range(text.substr(end, rest.end - end), true, false).begin;
    }
  }
  if (right) std::ranges::reverse(parts);
  return parts;
}

std::vector<Range> split_separator(std::string_view text, std::string_view separator, std::int64_t limit,
                                   bool right) {
  std::vector<Range> parts;
  Range rest{0, text.size()};
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::string_view left = text.substr(rest.begin, rest.end - rest.begin);
    const std::size_t found = right ? left.rfind(separator) : left.find(separator);
    if (found == std::string_view::npos) break;
    const std::size_t at = rest.begin + found;
    parts.push_back(right ? Range{at + separator.size(), rest.end} : Range{rest.begin, at});
    (right ? rest.end : rest.begin) = right ? at : at + separator.size();
  }
  parts.push_back(rest);
  if (right) std::ranges::reverse(parts);
  return parts;
}

Value slices(Interpreter& in, const Text& text, const std::vector<Range>& parts) {
  in.reserve(parts.size() * (sizeof(Value) + sizeof(Text)));
  std::vector<Value> items;
  for (const Range& part : parts) items.push_back(in.make(text.slice(part.begin, part.end)));
  return in.make_list(std::move(items));
}

Value split(Interpreter& in, const Value& self, Arguments& arguments, bool right) {
  const Text& text = self.text();
  const Value* separator = arguments.get(0, "sep");
  const Value* limit_value = arguments.get(1, "maxsplit");
  const std::int64_t limit = limit_value != nullptr ? expect_integer(in, limit_value, "maxsplit") : -1;
  in.scan(text.size());
  if (separator == nullptr || separator->is_none()) {
    return slices(in, text, split_words(text.bytes(), limit, right));
  }
  const std::string& between = expect_text(in, separator, "the separator of split").bytes();
  if (between.empty()) in.error("the separator of split is empty");
  return slices(in, text, split_separator(text.bytes(), between, limit, right));
}

Value str_split(Interpreter& in, const Value& self, Arguments& arguments) {
  return split(in, self, arguments, false);
}
Value str_rsplit(Interpreter& in, const Value& self, Arguments& arguments) {
  return split(in, self, arguments, true);
}

Value partition(Interpreter& in, const Value& self, Arguments& arguments, bool right) {
  const Text& text = self.text();
  const Text& separator = expect_text(in, arguments.get(0, "sep"), "the separator of partition");
  if (separator.empty()) in.error("the separator of partition is empty");
  in.scan(text.size());
  const std::vector<Range> parts = split_separator(text.bytes(), separator.bytes(), 1, right);
  if (parts.size() == 1) {
    const Value empty = in.make(Text());
    return in.make_list(
        right ? std::vector<Value>{empty, empty, self} : std::vector<Value>{self, empty, empty},
        List::Shape::tuple);
  }
  return in.make_list(
      {in.make(text.slice(parts[0].begin, parts[0].end)), in.make(text.slice(parts[0].end, parts[1].begin)),
       in.make(text.slice(parts[1].begin, parts[1].end))},
      List::Shape::tuple);
}

Value str_partition(Interpreter& in, const Value& self, Arguments& arguments) {
  return partition(in, self, arguments, false);
}
Value str_rpartition(Interpreter& in, const Value& self, Arguments& arguments) {
  return partition(in, self, arguments, true);
}

bool affix(Interpreter& in, const Value& self, Arguments& arguments, bool start) {
  const Value* wanted = arguments.get(0, "prefix");
  if (wanted == nullptr) in.error("startswith and endswith need a str");
  const std::vector<Value> any = wanted->is_list() ? wanted->list().items : std::vector<Value>{*wanted};
  return std::ranges::any_of(any, [&](const Value& one) {
    const std::string& part = expect_text(in, &one, "the argument of startswith or endswith").bytes();
    in.scan(part.size());
    return start ? self.text().bytes().starts_with(part) : self.text().bytes().ends_with(part);
  });
}

Value str_startswith(Interpreter& in, const Value& self, Arguments& arguments) {
  return affix(in, self, arguments, true);
}
Value str_endswith(Interpreter& in, const Value& self, Arguments& arguments) {
  return affix(in, self, arguments, false);
}

Value str_removeprefix(Interpreter& in, const Value& self, Arguments& arguments) {
  const std::string& part = expect_text(in, arguments.get(0, ""), "the prefix").bytes();
  const Text& text = self.text();
  return text.bytes().starts_with(part) ? in.make(text.slice(part.size(), text.size())) : self;
}

Value str_removesuffix(Interpreter& in, const Value& self, Arguments& arguments) {
  const std::string& part = expect_text(in, arguments.get(0, ""), "the suffix").bytes();
  const Text& text = self.text();
  return text.bytes().ends_with(part) ? in.make(text.slice(0, text.size() - part.size())) : self;
}

Value str_title(Interpreter& in, const Value& self, Arguments&) {
  const Text& text = self.text();
  Text result;
  bool begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = read_character(text.bytes(), at);
    result.append(change_case(text.slice(start, at), begins));
    begins = !is_cased_letter(c);
  }
  return in.make(std::move(result));
}

Value str_replace(Interpreter& in, const Value& self, Arguments& arguments) {
  const Value* count = arguments.get(2, "count");
  return replace_text(in, self.text(), expect_text(in, arguments.get(0, "old"), "what to replace"),
                      expect_text(in, arguments.get(1, "new"), "the replacement"),
                      count == nullptr ? -1 : expect_integer(in, count, "the count of replace"));
}

Value find(Interpreter& in, const Value& self, Arguments& arguments, bool right) {
  const std::string& text = self.text().bytes();
  const std::string& part = expect_text(in, arguments.get(0, "sub"), "what to find").bytes();
  in.scan(text.size());
  const std::size_t found = right ? text.rfind(part) : text.find(part);
  if (found == std::string::npos) return std::int64_t{-1};
  return static_cast<std::int64_t>(count_characters(std::string_view(text).substr(0, found)));
}

Value str_find(Interpreter& in, const Value& self, Arguments& arguments) {
  return find(in, self, arguments, false);
}
Value str_rfind(Interpreter& in, const Value& self, Arguments& arguments) {
  return find(in, self, arguments, true);
}
Value str_index(Interpreter& in, const Value& self, Arguments& arguments) {
  const Value found = find(in, self, arguments, false);
  if (found.integer() < 0) in.error("the text to find is not there");
  return found;
}

Value str_count(Interpreter& in, const Value& self, Arguments& arguments) {
  const std::string& part = expect_text(in, arguments.get(0, "sub"), "what to count").bytes();
  in.scan(self.text().size());
  if (part.empty()) return static_cast<std::int64_t>(count_characters(self.text().bytes()) + 1);
  return static_cast<std::int64_t>(split_separator(self.text().bytes(), part, -1, false).size() - 1);
}

Value str_splitlines(Interpreter& in, const Value& self, Arguments& arguments) {
  const Value* keep = arguments.get(0, "keepends");
  return slices(in, self.text(), split_lines(self.text().bytes(), keep != nullptr && keep->truthy()));
}

Value str_join(Interpreter& in, const Value& self, Arguments& arguments) {
  if (arguments.positional.size() != 1) in.error("join takes one list");
  for (const Value& item : in.iterate(arguments.positional[0])) expect_text(in, &item, "an item to join");
  Arguments separator;
  separator.positional.push_back(self);
  return filter_join(in, arguments.positional[0], separator);
}

// Only plain fields: {}, {0} and {name}.
Value str_format(Interpreter& in, const Value& self, Arguments& arguments) {
  const Text& pattern = self.text();
  const std::string& bytes = pattern.bytes();
  Text result;
  std::size_t next = 0, begin = 0;
  for (std::size_t at; (at = bytes.find_first_of("{}", begin)) != std::string::npos;) {
    result.append(pattern, begin, at);
    if (at + 1 < bytes.size() && bytes[at + 1] == bytes[at]) {
      result.append(pattern, at, at + 1);
      begin = at + 2;
      continue;
    }
    const std::size_t end = bytes[at] == '{' ? bytes.find('}', at) : std::string::npos;
    if (end == std::string::npos) in.error("format: a brace has no partner");
    const std::string field = bytes.substr(at + 1, end - at - 1);
    if (field.find_first_of(":!.[{") != std::string::npos) in.error("format: \"{}\" is not supported", field);
    const bool digits = !field.empty() && field.size() < 4 &&
                        std::ranges::all_of(field, [](char c) { return c >= '0' && c <= '9'; });
    const std::size_t position = field.empty() ? next++ : digits ? std::stoul(field) : SIZE_MAX;
    const Value* value = arguments.get(position, digits || field.empty() ? "" : std::string_view(field));
    if (value == nullptr) in.error("format: there is no value for \"{}\"", field);
    const Text text = in.to_text(*value);
    in.reserve(text.memory());
    result.append(text);
    begin = end + 1;
  }
  result.append(pattern, begin, bytes.size());
  return in.make(std::move(result));
}

Value str_lower(Interpreter& in, const Value& self, Arguments&) {
  return in.make(change_case(self.text(), false));
}
Value str_upper(Interpreter& in, const Value& self, Arguments&) {
  return in.make(change_case(self.text(), true));
}
Value str_capitalize(Interpreter& in, const Value& self, Arguments&) {
  return in.make(change_case(change_case(self.text(), false), true, 0, 1));
}

// Whether the text has characters and all satisfy `test`.
template <class Test>
bool all_characters(Interpreter& in, const Value& self, Test test) {
  const std::string& text = self.text().bytes();
  in.scan(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (!test(read_character(text, at))) return false;
  }
  return !text.empty();
}

Value str_isdigit(Interpreter& in, const Value& self, Arguments&) {
  return all_characters(in, self, is_decimal_digit);
}
Value str_isalpha(Interpreter& in, const Value& self, Arguments&) {
  return all_characters(in, self, is_letter);
}
Value str_isalnum(Interpreter& in, const Value& self, Arguments&) {
  return all_characters(in, self, [](char32_t c) { return is_letter(c) || is_decimal_digit(c); });
}
Value str_isspace(Interpreter& in, const Value& self, Arguments&) {
  return all_characters(in, self, is_space);
}

Value pairs_of(Interpreter& in, const Value& self, bool keys, bool values) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().items) {
    items.push_back(keys && values ? in.make_list({key, value}, List::Shape::tuple) : keys ? key : value);
  }
  return in.make_list(std::move(items));
}

Value dict_items(Interpreter& in, const Value& self, Arguments&) {
  return pairs_of(in, self, true, true);
}
Value dict_keys(Interpreter& in, const Value& self, Arguments&) {
  return pairs_of(in, self, true, false);
}
Value dict_values(Interpreter& in, const Value& self, Arguments&) {
  return pairs_of(in, self, false, true);
}

Value dict_get(Interpreter& in, const Value& self, Arguments& arguments) {
  const Value* key = arguments.get(0, "key");
  if (key == nullptr) in.error("get needs a key");
  in.step(static_cast<std::int64_t>(self.dict().items.size() / 8));
  const Value* found = self.dict().find(*key);
  const Value* fallback = arguments.get(1, "default");
  return found != nullptr ? *found : fallback != nullptr ? *fallback : Value();
}

Value copy(Interpreter&, const Value& self, Arguments&) {
  return self;
}

Value list_index(Interpreter& in, const Value& self, Arguments& arguments) {
  const Value* wanted = arguments.get(0, "value");
  if (wanted == nullptr) in.error("index needs a value");
  const auto& items = self.list().items;
  in.step(static_cast<std::int64_t>(items.size()));
  const auto found = std::ranges::find_if(items, [&](const Value& item) { return equal(item, *wanted); });
  if (found == items.end()) in.error("the value is not in the list");
  return static_cast<std::int64_t>(found - items.begin());
}

Value list_count(Interpreter& in, const Value& self, Arguments& arguments) {
  const Value* wanted = arguments.get(0, "value");
  if (wanted == nullptr) in.error("count needs a value");
  const auto& items = self.list().items;
  in.step(static_cast<std::int64_t>(items.size()));
  return static_cast<std::int64_t>(
      std::ranges::count_if(items, [&](const Value& item) { return equal(item, *wanted); }));
}

const Table* methods_of(const Value& object) {
  static const Table kString = {
      {"strip", str_strip},
      {"lstrip", str_lstrip},
      {"rstrip", str_rstrip},
      {"split", str_split},
      {"rsplit", str_rsplit},
      {"partition", str_partition},
      {"rpartition", str_rpartition},
      {"startswith", str_startswith},
      {"endswith", str_endswith},
      {"removeprefix", str_removeprefix},
      {"removesuffix", str_removesuffix},
      {"title", str_title},
      {"replace", str_replace},
      {"find", str_find},
      {"rfind", str_rfind},
      {"index", str_index},
      {"count", str_count},
      {"splitlines", str_splitlines},
      {"join", str_join},
      {"lower", str_lower},
      {"upper", str_upper},
      {"capitalize", str_capitalize},
      {"isdigit", str_isdigit},
      {"isalpha", str_isalpha},
      {"isalnum", str_isalnum},
      {"isspace", str_isspace},
      {"format", str_format},
  };
  static const Table kDict = {
      {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"get", dict_get}, {"copy", copy}};
  static const Table kList = {{"index", list_index}, {"count", list_count}, {"copy", copy}};
  if (object.is_string()) return &kString;
  if (object.is_dict()) return &kDict;
  return object.is_list() ? &kList : nullptr;
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
  const Table* methods = methods_of(object);
  return methods != nullptr && methods->contains(name);
}

Value call_method(Interpreter& interpreter, const Value& object, const std::string& name,
                  Arguments& arguments) {
  return methods_of(object)->at(name)(interpreter, object, arguments);
}

Text change_case(const Text& text, bool upper, std::size_t begin_character, std::size_t end_character) {
  static constexpr char32_t kSharpS = 0xDF;  // its upper case is two letters
  Text result;
  std::size_t index = 0;
  for (std::size_t at = 0; at < text.size(); ++index) {
    const std::size_t start = at;
    const char32_t c = read_character(text.bytes(), at);
    const bool inside = index >= begin_character && index < end_character;
    const char32_t changed = upper ? upper_case(c) : lower_case(c);
    if (!inside || (changed == c && c != kSharpS)) {
      result.append(text, start, at);
    } else {
      std::string bytes;
      if (c == kSharpS && upper) {
        bytes = "SS";
      } else {
        text::append_code_point(changed, bytes);
      }
      result.append(bytes, text.label_at(start));
    }
  }
  return result;
}

Value replace_text(Interpreter& interpreter, const Text& text, const Text& from, const Text& to,
                   std::int64_t count) {
  interpreter.scan(text.size());
  std::vector<std::size_t> places;  // where `from` is
  if (from.empty()) {
    places = character_offsets(text.bytes());
  } else {
    for (std::size_t at = 0; (at = text.bytes().find(from.bytes(), at)) != std::string::npos;
         at += from.size()) {
      places.push_back(at);
    }
  }
  if (count >= 0) places.resize(std::min(places.size(), static_cast<std::size_t>(count)));
  interpreter.reserve(text.memory() + places.size() * (to.memory() + sizeof(std::size_t)));
  Text result;
  std::size_t done = 0;
  for (const std::size_t place : places) {
    result.append(text, done, place);
    result.append(to);
    done = place + from.size();
  }
  result.append(text, done, text.size());
  return result;
}

std::vector<Range> split_lines(std::string_view text, bool keep_ends) {
  std::vector<Range> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = read_character(text, at);
    const bool ends =
        (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back({begin, keep_ends ? at : start});
    begin = at;
  }
  if (begin < text.size()) lines.push_back({begin, text.size()});
  return lines;
}

}  // namespace lode::jinja
