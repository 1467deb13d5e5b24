#include <algorithm>
#include <charconv>

#include "text/jinja_filters.h"

namespace lode::jinja {
namespace {

// The attribute of a path such as "function.name"; digits are indices.
Value get_path(Interpreter& in, Value value, const Value& path) {
  if (path.is_int()) return in.get_item(value, path);
  std::string_view rest = expect_text(in, &path, "the name of an attribute").bytes();
  for (;;) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    std::int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool digits = parsed.ec == std::errc() && parsed.ptr == part.data() + part.size() && part[0] != '-';
    value = in.get_item(value, digits ? Value(index) : Value::string(part));
    if (part.size() == rest.size()) return value;
    rest.remove_prefix(part.size() + 1);
  }
}

// What values are sorted and told apart by.
struct Key {
  const Value* attribute = nullptr;
  bool case_sensitive = false;

  Value operator()(Interpreter& in, const Value& value) const {
    Value key = attribute != nullptr && !attribute->is_none() ? get_path(in, value, *attribute) : value;
    if (!case_sensitive && key.is_string()) return in.make(change_case(key.text(), false));
    return key;
  }
};

bool flag(Arguments& arguments, std::size_t position, std::string_view name) {
  const Value* given = arguments.get(position, name);
  return given != nullptr && given->truthy();
}

std::vector<Value> sorted(Interpreter& in, const std::vector<Value>& items, const Key& key, bool reverse) {
  std::vector<std::pair<Value, std::size_t>> order;
  for (std::size_t i = 0; i < items.size(); ++i) order.emplace_back(key(in, items[i]), i);
  for (const auto& entry : order) {
    if (!comparable(order[0].first, entry.first)) in.less(order[0].first, entry.first);
  }
  in.step(static_cast<std::int64_t>(items.size()) * 20);
  const auto before = [&](const auto& a, const auto& b) {
    return reverse ? in.less(b.first, a.first) : in.less(a.first, b.first);
  };
  std::ranges::stable_sort(order, before);
  std::vector<Value> result;
  for (const auto& entry : order) result.push_back(items[entry.second]);
  return result;
}

Value pair_list(Interpreter& in, const std::vector<std::pair<Value, Value>>& pairs, List::Shape shape) {
  std::vector<Value> items;
  for (const auto& [key, value] : pairs) items.push_back(in.make_list({key, value}, List::Shape::tuple));
  return in.make_list(std::move(items), shape);
}

// The arguments from `begin` on, for a filter or test that is called by name.
Arguments tail(const Arguments& arguments, std::size_t begin) {
  Arguments rest;
  for (std::size_t i = begin; i < arguments.positional.size(); ++i) {
    rest.positional.push_back(arguments.positional[i]);
  }
  rest.named = arguments.named;
  return rest;
}

Value select(Interpreter& in, const Value& value, Arguments& arguments, bool by_attribute, bool wanted) {
  const std::size_t first = by_attribute ? 1 : 0;
  if (arguments.positional.size() < first) in.error("the name of an attribute is missing");
  std::vector<Value> kept;
  if (!value.truthy()) return in.make_list({}, List::Shape::generator);  // none too
  for (const Value& item : in.iterate(value)) {
    in.step();
    const Value tested = by_attribute ? get_path(in, item, arguments.positional[0]) : item;
    bool passes = tested.truthy();
    if (arguments.positional.size() > first) {
      Arguments rest = tail(arguments, first + 1);
      const std::string& name = expect_text(in, &arguments.positional[first], "the name of a test").bytes();
      passes = apply_test(in, name, tested, rest);
    }
    if (passes == wanted) kept.push_back(item);
  }
  return in.make_list(std::move(kept), List::Shape::generator);
}

Value extreme(Interpreter& in, const Value& value, Arguments& arguments, bool largest) {
  const std::vector<Value> items = in.iterate(value);
  if (items.empty()) return Value::undefined("the extreme of nothing");
  const Key key{arguments.get(1, "attribute"), flag(arguments, 0, "case_sensitive")};
  Value best = items[0], best_key = key(in, best);
  for (const Value& item : items) {
    const Value item_key = key(in, item);
    if (largest ? in.less(best_key, item_key) : in.less(item_key, best_key)) {
      best = item;
      best_key = item_key;
    }
  }
  return best;
}

}  // namespace

Value filter_length(Interpreter& in, const Value& value, Arguments&) {
  if (value.is_undefined()) return std::int64_t{0};
  if (value.is_string()) {
    in.scan(value.text().size());
    return static_cast<std::int64_t>(count_characters(value.text().bytes()));
  }
  if (value.is_list() && value.list().shape != List::Shape::generator) {
    return static_cast<std::int64_t>(value.list().items.size());
  }
  if (!value.is_dict()) in.error("a {} has no length", value.type_name());
  return static_cast<std::int64_t>(value.dict().items.size());
}

Value filter_items(Interpreter& in, const Value& value, Arguments&) {
  if (value.is_undefined()) return in.make_list({}, List::Shape::generator);
  if (!value.is_dict()) in.error("items needs a dict, not {}", value.type_name());
  return pair_list(in, value.dict().items, List::Shape::generator);
}

Value filter_join(Interpreter& in, const Value& value, Arguments& arguments) {
  const Value* separator = arguments.get(0, "d");
  const Value* attribute = arguments.get(1, "attribute");
  const Text between = separator != nullptr ? in.to_text(*separator) : Text();
  Text text;
  bool first = true;
  for (const Value& item : in.iterate(value)) {
    if (!first) text.append(between);
    first = false;
    const bool path = attribute != nullptr && !attribute->is_none();
    const Text piece = in.to_text(path ? get_path(in, item, *attribute) : item);
    in.reserve(piece.memory() + between.memory());
    text.append(piece);
  }
  return text;
}

Value filter_list(Interpreter& in, const Value& value, Arguments&) {
  return in.make_list(in.iterate(value));
}

Value filter_first(Interpreter& in, const Value& value, Arguments&) {
  const std::vector<Value> items = in.iterate(value);
  return items.empty() ? Value::undefined("the first item of nothing") : items.front();
}

Value filter_last(Interpreter& in, const Value& value, Arguments&) {
  const std::vector<Value> items = in.iterate(value);
  return items.empty() ? Value::undefined("the last item of nothing") : items.back();
}

Value filter_reverse(Interpreter& in, const Value& value, Arguments&) {
  std::vector<Value> items = in.iterate(value);
  std::ranges::reverse(items);
  if (!value.is_string()) return in.make_list(std::move(items), List::Shape::generator);
  Text text;
  for (const Value& item : items) text.append(item.text());
  return in.make(std::move(text));
}

Value filter_map(Interpreter& in, const Value& value, Arguments& arguments) {
  std::vector<Value> mapped;
  const Value* attribute = nullptr;
  const Value* fallback = nullptr;
  if (!value.truthy()) return in.make_list({}, List::Shape::generator);  // none too
  for (const auto& [name, given] : arguments.named) {
    if (name == "attribute") attribute = &given;
    if (name == "default") fallback = &given;
  }
  for (const Value& item : in.iterate(value)) {
    in.step();
    if (attribute != nullptr && arguments.positional.empty()) {
      const Value found = get_path(in, item, *attribute);
      mapped.push_back(found.is_undefined() && fallback != nullptr ? *fallback : found);
    } else {
      Arguments rest = tail(arguments, 1);
      mapped.push_back(apply_filter(
          in, expect_text(in, arguments.get(0, "name"), "the filter for map").bytes(), item, rest));
    }
  }
  return in.make_list(std::move(mapped), List::Shape::generator);
}

Value filter_select(Interpreter& in, const Value& value, Arguments& arguments) {
  return select(in, value, arguments, false, true);
}

Value filter_reject(Interpreter& in, const Value& value, Arguments& arguments) {
  return select(in, value, arguments, false, false);
}

Value filter_selectattr(Interpreter& in, const Value& value, Arguments& arguments) {
  return select(in, value, arguments, true, true);
}

Value filter_rejectattr(Interpreter& in, const Value& value, Arguments& arguments) {
  return select(in, value, arguments, true, false);
}

Value filter_sort(Interpreter& in, const Value& value, Arguments& arguments) {
  const Key key{arguments.get(2, "attribute"), flag(arguments, 1, "case_sensitive")};
  return in.make_list(sorted(in, in.iterate(value), key, flag(arguments, 0, "reverse")));
}

Value filter_dictsort(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!value.is_dict()) in.error("dictsort needs a dict, not {}", value.type_name());
  const Value* by = arguments.get(1, "by");
  const Value part = std::int64_t{by != nullptr && by->is_string() && by->text().bytes() == "value" ? 1 : 0};
  const Key key{&part, flag(arguments, 0, "case_sensitive")};
  const Value pairs = pair_list(in, value.dict().items, List::Shape::list);
  return in.make_list(sorted(in, pairs.list().items, key, flag(arguments, 2, "reverse")));
}

Value filter_unique(Interpreter& in, const Value& value, Arguments& arguments) {
  const Key key{arguments.get(1, "attribute"), flag(arguments, 0, "case_sensitive")};
  std::vector<Value> kept, seen;
  for (const Value& item : in.iterate(value)) {
    const Value item_key = key(in, item);
    in.step(static_cast<std::int64_t>(seen.size()));
    if (std::ranges::any_of(seen, [&](const Value& other) { return equal(other, item_key); })) continue;
    seen.push_back(item_key);
    kept.push_back(item);
  }
  return in.make_list(std::move(kept), List::Shape::generator);
}

Value filter_sum(Interpreter& in, const Value& value, Arguments& arguments) {
  const Value* attribute = arguments.get(0, "attribute");
  const Value* start = arguments.get(1, "start");
  Value total = start != nullptr ? *start : Value(std::int64_t{0});
  for (const Value& item : in.iterate(value)) {
    const bool path = attribute != nullptr && !attribute->is_none();
    total = in.binary("+", total, path ? get_path(in, item, *attribute) : item);
  }
  return total;
}

Value filter_min(Interpreter& in, const Value& value, Arguments& arguments) {
  return extreme(in, value, arguments, false);
}

Value filter_max(Interpreter& in, const Value& value, Arguments& arguments) {
  return extreme(in, value, arguments, true);
}

}  // namespace lode::jinja
