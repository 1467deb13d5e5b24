// Filters on lists and dicts, for the table of filters.
#pragma once

#include "text/jinja_interpreter.h"

namespace lode::jinja {

Value filter_length(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_items(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_join(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_list(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_first(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_last(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_reverse(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_map(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_select(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_reject(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_selectattr(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_rejectattr(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_sort(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_dictsort(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_unique(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_sum(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_min(Interpreter& in, const Value& value, Arguments& arguments);
Value filter_max(Interpreter& in, const Value& value, Arguments& arguments);

}  // namespace lode::jinja
