// The template language: every check value comes from jinja2 3.1.
#include <gtest/gtest.h>

#include "core/rng.h"
#include "lode/error.h"
#include "text/jinja_interpreter.h"

namespace lode {
namespace {

// Renders with d (a dict), m (two messages) and n (none).
std::string run(const std::string& source, jinja::Limits limits = {}) {
  const jinja::Program program = jinja::parse_program(source, "test.jinja");
  const Json d = parse_json(R"({"b": 1, "a": [true, null, 1.5, "é<&"]})", "d");
  const Json m = parse_json(
      R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": " yo ", "items": 3}])", "m");
  jinja::Interpreter::Variables variables;
  variables.emplace_back("d", jinja::from_json(d, {}));
  variables.emplace_back("m", jinja::from_json(m, {}));
  variables.emplace_back("n", jinja::Value());
  return jinja::Interpreter(program, std::move(variables), limits, 0).run().bytes();
}

std::string error_of(const std::string& source, jinja::Limits limits = {}) {
  try {
    return "no error, but: " + run(source, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
    return error.what();
  }
}

struct Case {
  const char* source;
  const char* expected;
};

void check(std::initializer_list<Case> cases) {
  for (const Case& each : cases) {
    try {
      EXPECT_EQ(run(each.source), each.expected) << each.source;
    } catch (const Error& error) {
      ADD_FAILURE() << each.source << ": " << error.what();
    }
  }
}

TEST(Jinja, WhiteSpace) {
  check({
      {"{% if true %}\nA\n{% endif %}\nB\n", "A\nB"},
      {"  {% if true %}A{% endif %}\n  {{ 1 }}\n{{ 2 }}\n", "A  1\n2"},
      {"a\n{%- if true -%}\n b \n{%- endif %}\n c", "ab c"},
      {"a\r\nb\rc\n\n", "a\nb\nc\n"},
      {"x  {%+ if true %}\n y{% endif +%}\nz", "x   y\nz"},
      {"  {# note #}\nA {#- note -#} \n B", "AB"},
      {"x {{- 1 -}}  y {{ 2 }}\n", "x1y 2"},
      {" \t{% set x = 1 %}\n {{ x }}", " 1"},
      {"{% raw %}{{ x }}{% y %}{% endraw %}\n.", "{{ x }}{% y %}."},
      {"{{ '}}' }}{{ {'a': {}} }}", "}}{'a': {}}"},
      {"{# {{ #}{ {% raw -%}  a{%- endraw %}", "{ a"},
      {"", ""},
      {"\n", ""},
  });
}

TEST(Jinja, PrintsAsPython) {
  check({
      {"{{ d }}", "{'b': 1, 'a': [True, None, 1.5, 'é<&']}"},
      {"{{ d | tojson }}", R"({"b": 1, "a": [true, null, 1.5, "é<&"]})"},
      {R"({{ ["it's"] }} {{ (1,2) }} {{ 1.0 }} {{ 3 / 2 }} {{ 7 // 2 }} {{ 1e20 }} {{ -5 % 3 }})",
       R"(["it's"] (1, 2) 1.0 1.5 3 1e+20 1)"},
      {"{{ (1,) }} {{ () }} {{ [] }} {{ {} }} {{ 1e-5 }} {{ 0.0001 }} {{ 123456789.5 }} {{ 1e15 }} {{ 1e16 "
       "}}",
       "(1,) () [] {} 1e-05 0.0001 123456789.5 1000000000000000.0 1e+16"},
      {R"({{ ['a\n\t\\', '\x7f\u200b"', "'\""] }})", R"(['a\n\t\\', '\x7f\u200b"', '\'"'])"},
      {"{{ d | tojson(indent=2) }}",
       "{\n  \"b\": 1,\n  \"a\": [\n    true,\n    null,\n    1.5,\n    \"é<&\"\n  ]\n}"},
      {"{{ 'é😀' | tojson(ensure_ascii=true) }}", R"("\u00e9\ud83d\ude00")"},
      {"{{ d | tojson(separators=(',', ':'), sort_keys=true) }}", R"({"a":[true,null,1.5,"é<&"],"b":1})"},
      {"{{ {1: [], none: {}, true: 2.0} | tojson(indent=1) }}", "{\n \"1\": 2.0,\n \"null\": {}\n}"},
      {"{{ '\\u0001\\x7f\\b' | tojson }}", "\"\\u0001\x7f\\b\""},
  });
}

TEST(Jinja, UndefinedIsLenient) {
  check({
      {"{{ x }}|{{ d.zz }}|{{ m[0].zz is defined }}", "||False"},
      {R"({{ m[1].items is defined }} {{ m[1]["items"] }})", "True 3"},
      {R"({{ q | default("D") }} {{ "" | default("D") }} {{ "" | default("D", true) }})", "D  D"},
      {"{{ x | length }}{% for i in x %}a{% else %}b{% endfor %}{{ 'a' in x }}{{ x ~ 1 }}", "0bFalse1"},
      {"{{ m[7] is undefined }} {{ 'abc'[9] is defined }} {{ n.x is defined }}", "True False False"},
      {R"({{ "a" ~ 1 ~ none }}|{{ "x" if false }})", "a1None|"},
  });
  EXPECT_NE(error_of("{{ x.y }}").find("test.jinja: line 1: \"x\" is undefined"), std::string::npos);
  EXPECT_NE(error_of("\n\n{{ 'a' + x }}").find("line 3"), std::string::npos);
}

TEST(Jinja, ScopesAndLoops) {
  check({
      {"{% set x = 1 %}{% for i in [1,2] %}{% set x = i %}{% endfor %}{{ x }}", "1"},
      {"{% set ns = namespace(x=1) %}{% for i in [1,2] %}{% set ns.x = i %}{% endfor %}{{ ns.x }}", "2"},
      {"{% for k, v in d | dictsort %}{{ k }};{% endfor %}", "a;b;"},
      {R"({% for x in m if x.role != "user" %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{% endfor %})",
       "0TrueTrue"},
      {"{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif "
       "%}{{ i }}"
       "{% endfor %}",
       "02"},
      {"{% for i in 'ab' %}{{ loop.index }}/{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ "
       "loop.nextitem }}"
       "{{ loop.cycle('x', 'y') }} {% endfor %}",
       "1/22bx 2/21ay "},
      {"{% for a in [1] %}{% for b in [1, 2] %}{{ loop.depth }}{% endfor %}{{ loop.depth }}{% endfor %}",
       "111"},
      {R"({% macro f(a, b="q") -%} {{ a }}{{ b }} {%- endmacro %}[{{ f(1) }}{{ f(2, b="w") }}])", "[1q2w]"},
      {"{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "321"},
      {"{% set x %}a{{ 1 }}b{% endset %}{{ x | upper }}{% set y | upper %}q{% endset %}{{ y }}", "A1BQ"},
      {"{% filter upper | trim %} a{% endfilter %}{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}",
       "A3"},
      {"{% generation %}{% set z = 1 %}a{% endgeneration %}{{ z }}", "a"},
      {"{% if 0 %}a{% elif '' %}b{% else %}c{% endif %}", "c"},
      {"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
      {"{% for x in d.a | select('string') %}{{ x }}{% endfor %}", "é<&"},
      {"{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{% for x in [3] %}{{ f() }}{% "
       "endfor %}",
       "2"},
  });
}

TEST(Jinja, TextMethods) {
  check({
      {R"({{ "xxaxx".strip("x") }} {{ "</think>abc".lstrip("<k>/thin") }})", "a abc"},
      {R"({{ m[::-1][0].role }} {{ m[1:] | length }} {{ "abc"[-1] }} {{ "abc"[:-1] }})", "assistant 1 c ab"},
      {"{{ 'a b  c '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b "
       "'.split(none, 1) }}",
       "['a', 'b', 'c'] ['a', 'b,c'] ['a,b', 'c'] ['a', 'b ']"},
      {"{{ ''.split(',') }}{{ ''.split() }}{{ 'aXbX'.split('X')[-1] }}", "[''][]"},
      {"{{ 'héLLo'.capitalize() }} {{ 'a-b c'.title() }} {{ 'ß'.upper() }} {{ 'ÀÉ'.lower() }}",
       "Héllo A-B C SS àé"},
      {"{{ 'abc'.replace('b', 'xx') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }}",
       "axxc bba -a-b-"},
      {"{{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ 'aéb'.find('b') }} {{ 'a'.find('z') "
       "}}",
       "True True 2 -1"},
      {"{{ '-'.join(['a', 'b']) }} {{ 'a=b=c'.partition('=') }} {{ 'abc'.removeprefix('a').removesuffix('c') "
       "}}",
       "a-b ('a', '=', 'b=c') b"},
      {"{{ 'a\\r\\nb\\n'.splitlines() }} {{ 'banana'.count('an') }} {{ '12'.isdigit() }} {{ '{} {{}} "
       "{a}'.format(1, a=2) }}",
       "['a', 'b'] 2 True 1 {} 2"},
      {"{{ '😀b'[::-1] }} {{ 'abcdef'[1:5:2] }} {{ 'abcdef'[-2:] }} {{ 'abc'[5:] }} {{ [1,2,3][::-2] }}",
       "b😀 bd ef  [3, 1]"},
      {"{{ '\\u00a0 a\\u3000'.strip() }} {{ '%s-%d%%' % ('a', 3) }} {{ 'x' * 3 }} {{ [1] * 2 }}",
       "a a-3% xxx [1, 1]"},
  });
}

TEST(Jinja, Operators) {
  check({
      {R"({{ "" or "z" }} {{ [] and 1 }} {{ not n }} {{ d is mapping }} {{ "s" is iterable }} {{ d is sequence }})",
       "z [] True True True True"},
      {R"({{ 10 | string + "x" }})", "10x"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }}",
       "True False True True True False"},
      {"{{ 1 + 2 * 3 - -4 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7 % -3 }} {{ -7 // 2 }} {{ 7.5 // 2 }}",
       "11 64 4 -2 -4 3.0"},
      {"{{ 'a' in 'cat' }} {{ 2 not in [1] }} {{ 'b' in d }} {{ not 1 in [1] }}", "True True True False"},
      {"{{ 1 if false else 2 if false else 3 }} {{ 'a' 'b' }} {{ [1, 2] + [3] }}", "3 ab [1, 2, 3]"},
      {"{{ x is defined and x or 'no' }} {{ 3 is divisibleby 3 }} {{ 1 is not none }} {{ 4 is even }}",
       "no True True True"},
      {"{{ true is boolean }} {{ 1 is boolean }} {{ 1 is true }} {{ n is none }} {{ 1 is number }} {{ true "
       "is integer }}",
       "True False False True True False"},
  });
}

TEST(Jinja, Filters) {
  check({
      {R"({{ "a\nb" | indent(2) }}|{{ "a\nb" | indent(2, true) }})", "a\n  b|  a\n  b"},
      {"{{ m | map(attribute='role') | join(', ') }} {{ ['a', 'B'] | map('upper') | list }}",
       "user, assistant ['A', 'B']"},
      {"{{ m | selectattr('role', 'equalto', 'user') | list | length }} {{ m | rejectattr('items') | list | "
       "length }} "
       "{{ [1, none, 2] | reject('none') | list }} {{ [1, 2] | select('in', [2]) | list }}",
       "1 0 [1, 2] [2]"},
      {"{{ ['b', 'A', 'b'] | unique | list }} {{ ['b', 'A'] | sort }} {{ [3, 1] | max }} {{ [1, 2] | sum }}",
       "['b', 'A'] ['A', 'b'] 3 3"},
      {"{% for k, v in d | items %}{{ k }}{% endfor %} {{ d | length }} {{ 'é' | length }} {{ d.items() | "
       "length }}",
       "ba 2 1 2"},
      {"{{ ' a ' | trim }}{{ 'xax' | trim('x') }}{{ 'a' | first }}{{ [1] | last }}{{ 'ab' | reverse }}",
       "aaa1ba"},
      {"{{ '3' | int + 1 }} {{ 'z' | int(7) }} {{ '2.5' | float }} {{ -3 | abs }} {{ 'hello world' | title "
       "}}",
       "4 7 2.5 3 Hello World"},
      {"{{ '<a>' | e }} {{ '<' | safe + '<b>' }} {{ '%s!' | format('x') }}", "&lt;a&gt; <&lt;b&gt; x!"},
      {"{{ none | selectattr('x') | list }}{{ 'y' if [] | select | list else 'n' }}", "[]n"},
      {"{{ dict(a=1).get('a') }} {{ d.get('q', 5) }} {{ d.get('q') }} {{ dict(d, b=2) | tojson | length > 5 "
       "}}",
       "1 5 None True"},
  });
}

TEST(Jinja, ErrorsNameTheLine) {
  for (const auto& [source, part] : std::vector<std::pair<std::string, std::string>>{
           {"a\n{% if x %}", "line 2: expected a tag \"endif\""},
           {"{% nonsense %}", "unknown tag \"nonsense\""},
           {"{{ 1 ", "line 1: a print has no end"},
           {"{{ (1 }}", "expected \")\""},
           {"\n{{ 'abc }}", "line 2: a string has no end"},
           {"{# x", "a comment has no end"},
           {"{% raw %}", "a raw block has no end"},
           {"{{ 1 + }}", "expected an expression, found the end of the tag"},
           {"{% for x in y recursive %}{% endfor %}", "recursive"},
           {"{% break %}", "outside of a loop"},
           {"\n{{ raise_exception('no ' ~ 1) }}", "line 2: the template rejects these messages: no 1"},
           {"{{ 1 | nothing }}", "no filter is named \"nothing\""},
           {"{{ 1 is nothing }}", "no test is named \"nothing\""},
           {"{{ nothing() }}", "\"nothing\" is undefined"},
           {"{{ m.append(1) }}", "no method \"append\""},
           {"{{ ''.__class__.__mro__ }}", "\"__class__\" is undefined"},
           {"{{ 1 // 0 }}", "division by zero"},
           {"{{ 9223372036854775807 + 1 }}", "too large"},
           {"{{ -(-9223372036854775807 - 1) }}", "too large"},
           {"{{ (-9223372036854775807 - 1) // -1 }}", "too large"},
           {"{{ 1 < 'a' }}", "have no order"},
           {"{{ '\\ud800' }}", "escape"},
           {"{% set x.y = 1 %}", "no namespace"},
           {"{{ namespace }}", "cannot be printed"},
           {"{{ x | tojson }}", "has no JSON form"},
           {"{{ 'a'.split('') }}", "is empty"},
           {"{% include 'x' %}", "unknown tag"},
       }) {
    const std::string message = error_of(source);
    EXPECT_NE(message.find(part), std::string::npos) << source << " gives: " << message;
    EXPECT_NE(message.find("test.jinja: line "), std::string::npos) << message;
  }
}

TEST(Jinja, Limits) {
  const std::string endless = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
  EXPECT_NE(error_of(endless).find("deeper"), std::string::npos);
  const std::string open(5000, '('), closed(5000, ')');
  EXPECT_NE(error_of("{{ " + open + "1" + closed + " }}").find("deeper"), std::string::npos);
  std::string sum = "{{ 1";
  for (int i = 0; i < 100'000; ++i) sum += "+1";
  EXPECT_NE(error_of(sum + " }}").find("deeper"), std::string::npos);
  std::string nots = "{{ ";
  for (int i = 0; i < 100'000; ++i) nots += "not ";
  EXPECT_NE(error_of(nots + "1 }}").find("deeper"), std::string::npos);
  std::string ifs;
  for (int i = 0; i < 100'000; ++i) ifs += "{% if 1 %}";
  EXPECT_NE(error_of(ifs).find("deeper"), std::string::npos);
  const std::string nest =
      "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  EXPECT_NE(error_of(nest).find("nested deeper"), std::string::npos);
  const std::string cycle = "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x == ns.x }}";
  EXPECT_EQ(run(cycle), "True");
  const std::string loops =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% set c = a %}{% endfor %}{% endfor %}";
  EXPECT_NE(error_of(loops).find("runs longer"), std::string::npos);
  EXPECT_NE(error_of("{{ 'ab' * 9000000000000 }}").find("makes more than"), std::string::npos);
  EXPECT_NE(error_of("{{ range(1000000) }}").find("range is longer"), std::string::npos);
  const std::string doubling =
      "{% set ns = namespace(x='abc') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
  EXPECT_NE(error_of(doubling).find("makes more than"), std::string::npos);
  jinja::Limits small;
  small.output = 10;
  EXPECT_EQ(run("0123456789", small), "0123456789");
  EXPECT_NE(error_of("01234567891", small).find("output is longer"), std::string::npos);
  small.steps = 3;
  EXPECT_NE(error_of("{{ 1 + 1 + 1 }}", small).find("runs longer than 3 steps"), std::string::npos);
}

TEST(Jinja, MutatedTemplatesOnlyThrowErrors) {
  const std::string source =
      "{%- macro f(a, b=[1, {'k': 2}]) %}{{ a | tojson(indent=2) }}{{ b[0:1] }}{% endmacro %}"
      "{% set ns = namespace(x='é') -%}{# c #}{% for k, v in d | items if not k is none %}{{ loop.index ~ "
      "f(v) }}"
      "{% set ns.x = ns.x + k.split('a')[-1] | trim %}{% else %}{% endfor %}{% generation %}{{ ns.x[::-1] }}"
      "{% endgeneration %}{{ m | map(attribute='role') | join(', ') if n is none else 1.5e3 // 2 }}"
      "{% raw %}{{ {% endraw %}{% filter upper %}a{% endfilter %}";
  static constexpr std::string_view kPieces = "{}%#-+|.,()[]'\"\\=~* \nabfx019\xC3\xFF";
  jinja::Limits small;
  small.steps = 20'000;
  Rng rng(5, "templates");
  int parsed = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string mutated = source;
    for (std::uint64_t edits = 1 + rng.below(4); edits > 0; --edits) {
      const std::size_t at = rng.below(mutated.size());
      const char piece = kPieces[rng.below(kPieces.size())];
      switch (rng.below(4)) {
        case 0:
          mutated[at] = piece;
          break;
        case 1:
          mutated.insert(at, 1, piece);
          break;
        case 2:
          mutated.erase(at, 1 + rng.below(8));
          break;
        default:
          mutated.insert(at, mutated.substr(rng.below(mutated.size()), 12));
      }
    }
    try {
      run(mutated, small);
      ++parsed;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::data) << mutated << error.what();
    }
  }
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace lode
