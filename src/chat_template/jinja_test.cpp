// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "base/local_time.h"
#include "base/random.h"

namespace tlt::chat_template {
namespace {

using Json = nlohmann::ordered_json;

const Json kVariables = Json::parse(R"({
  "name": "World", "n": 3, "x": 1.5, "yes": true, "nothing": null, "text": "  a,b,,c \n",
  "list": [3, 1, 2], "names": ["b", "A", "c"], "umlaut": "äöü",
  "dict": {"b": 1, "a": [1, "x"], "items": 5, "quote\"": "it's"},
  "rows": [{"k": "x", "v": 1}, {"k": "y", "v": 2}, {"k": "x"}]})");

std::string render(const std::string& source, int64_t steps = 1'000'000) {
  return JinjaTemplate::parse(source, "t.jinja")
      .render(kVariables, {.steps = steps, .now = local_time(1699963200)})
      .text;
}

std::string complaint(const std::string& source, int64_t steps = 1'000'000) {
  try {
    return "rendered: " + render(source, steps);
  } catch (const InputError& error) {
    return error.what();
  }
}

struct Case {
  const char *source, *want;
};

// Every value is that of transformers 5.23 (Jinja 3.1.6).
TEST(JinjaTest, ExpressionsMatchPython) {
  for (const Case& one : std::initializer_list<Case>{
           {"{{ -7 % 3 }} {{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7 - 2 - 1 }} {{ 1.5 * 2 }}",
            "2 7 9 4 3.0"},
           {"{{ not 1 in [2] and 1 == 1 or missing.x }} {{ 'a' ~ 'c' + 'b' ~ 1 == 'acb1' }} "
            "{{ 'a' + 1 ~ 2 == 'a12' }}",
            "True True True"},
           {"{{ 10000000000000000.0 }} {{ 0.0001 }} {{ 0.00001 }} {{ 3.0 }} {{ -0.0 }} "
            "{{ 10000000000000000000000.0 + 1 }}",
            "1e+16 0.0001 1e-05 3.0 -0.0 1e+22"},
           {"{{ 'a' ~ 1 ~ none ~ true ~ missing }}", "a1NoneTrue"},
           {"{{ [1, 'a', none, 1.5, (1,), {'k': \"it's\"}] }}",
            "[1, 'a', None, 1.5, (1,), {'k': \"it's\"}]"},
           {"{{ '\\u200b\\x85\\t' | list }}", "['\\u200b', '\\x85', '\\t']"},
           {"{{ 1 < 2 }} {{ 1.0 == true }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}",
            "True True True True"},
           {"{{ 'b' in names }} {{ 'z' not in names }} {{ 'or' in name }} {{ 'a' in dict }} "
            "{{ 'x' in missing }}",
            "True True True True False"},
           {"{{ missing is defined }} {{ name is defined }} {{ nothing is none }} {{ 1 is number "
            "}} "
            "{{ true is number }} {{ name is sequence }} {{ dict is mapping }} {{ yes is true }} "
            "{{ 1 is true }} {{ missing is iterable }} {{ 1 is in list }} {{ 1 is ne 2 }}",
            "False True True True True True True True False True True True"},
           {"{{ 'x' if n > 2 else 'y' }}{{ 'z' if n > 5 }}", "x"},
           {"{{ list[0] }} {{ list[-1] }} {{ list[1:] }} {{ list[::-1] }} {{ list[:-1] }} "
            "{{ list[5] is defined }} {{ name[1:3] }} {{ name[::-2] }} {{ umlaut[1] }}",
            "3 2 [1, 2] [2, 1, 3] [3, 1] False or drW ö"},
           {"{{ umlaut[::-1] }} {{ umlaut[::2] }} {{ umlaut[-1] }} {{ umlaut[1:9] }} "
            "{{ umlaut[5:] }}|{{ name[4:0:-2] }} {{ name[::-9] }} {{ umlaut[3] is defined }}",
            "üöä äü ü öü |dr d False"},
           {"{{ dict.b }} {{ dict['a'][1] }} {{ dict.zzz is defined }} {{ dict['items'] }} "
            "{{ dict.get('b') }} {{ dict.get('z', 4) }} {{ dict.items is defined }}",
            "1 x False 5 1 4 True"},
           {"{{ rows.0.k }} {{ not yes }} {{ yes and 0 }} {{ 0 or 'x' }} {{ -n }}",
            "x False 0 x -3"},
           {"{{ [1] + [2] }} {{ 'ab' * 2 }} {{ [0] * 3 }}", "[1, 2] abab [0, 0, 0]"},
           {"{{ {'a': 1, 'a': 2} }} {{ range(3) | list }}", "{'a': 2} [0, 1, 2]"},
           {"{{ ('<' | safe) + '<' }} {{ '<' ~ ('>' | safe) }}", "<&lt; <>"},
           {R"({{ ('<' | safe) + 'a&<>"\'b' }})", "<a&amp;&lt;&gt;&#34;&#39;b"},
           {"{{ strftime_now('%d %b %Y') }}", "14 Nov 2023"}})
    EXPECT_EQ(render(one.source), one.want) << one.source;
}

TEST(JinjaTest, FiltersMatchJinja) {
  for (const Case& one : std::initializer_list<Case>{
           {"{{ dict | tojson }}", R"({"b": 1, "a": [1, "x"], "items": 5, "quote\"": "it's"})"},
           {"{{ [1, {'a': []}] | tojson(indent=2) }}", "[\n  1,\n  {\n    \"a\": []\n  }\n]"},
           {"{{ dict | tojson(sort_keys=true, separators=(',', ':')) }}",
            R"({"a":[1,"x"],"b":1,"items":5,"quote\"":"it's"})"},
           {"{{ '<&>ä\\x7f\\n' | tojson }} {{ 'ä' | tojson(ensure_ascii=true) }}",
            "\"<&>ä\x7f\\n\" \"\\u00e4\""},
           {"{{ text | trim }}|{{ 'xxaxx' | trim('x') }}|{{ '\xC2\xA0 a\x1C' | trim }}",
            "a,b,,c|a|a"},
           {"{{ names | sort }} {{ names | sort(reverse=true) }} "
            "{{ list | sort | join('-') }} {{ rows | sort(attribute='k', reverse=true) | "
            "map(attribute='k') | join }}",
            "['A', 'b', 'c'] ['c', 'b', 'A'] 1-2-3 yxx"},
           {"{{ names | map('upper') | list }} {{ rows | map(attribute='v', default=0) | list }}",
            "['B', 'A', 'C'] [1, 2, 0]"},
           {"{{ rows | selectattr('k', 'equalto', 'x') | list | length }} "
            "{{ rows | rejectattr('v', 'defined') | list }} {{ list | select('in', [1, 3]) | list "
            "}} "
            "{{ list | reject('eq', 1) | list }} {{ nothing | select | list }} "
            "{{ [[0, 'a'], [1, 'b']] | map(attribute=1) | select('string') | join }}",
            "2 [{'k': 'x'}] [3, 1] [3, 2] [] ab"},
           {"{{ list | first }} {{ list | last }} {{ [] | first is defined }} "
            "{{ rows | map(attribute='k') | unique | join }}",
            "3 2 False xy"},
           {"{{ missing | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }} "
            "{{ 0 | d(5) }}",
            "d  d 0"},
           {"{{ 'aBC' | capitalize }} {{ 'äB' | upper }} {{ 'ÄB' | lower }}", "Abc ÄB äb"},
           {"{{ ' 12 ' | int }} {{ '1.9' | int }} {{ 'x' | int(-1) }} {{ '1_0' | int }}",
            "12 1 -1 10"},
           {"{{ 'a\\n\\nb' | indent }}|{{ 'a\\nb' | indent(2, true) }}", "a\n\n    b|  a\n  b"},
           {"{{ dict | dictsort | map('first') | join(',') }} {{ dict | items | list | length }}",
            "a,b,items,quote\" 4"},
           {"{{ 'aXbX' | replace('X', '-') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'ab' | "
            "replace('', '.') }}",
            "a-b- bba .a.b."},
           {"{{ 'äb' | length }} {{ 5 | string }}", "2 5"}})
    EXPECT_EQ(render(one.source), one.want) << one.source;
}

TEST(JinjaTest, MethodsMatchStr) {
  for (const Case& one : std::initializer_list<Case>{
           {"{{ text.strip().split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} "
            "{{ ' a b '.split(none, 1) }} {{ ''.split() }}",
            "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b c'] ['a', 'b '] []"},
           {"{{ 'xaxbx'.strip('x') }} {{ 'xa'.lstrip('x') }} {{ 'ax'.rstrip('x') }}", "axb a a"},
           {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }}", "True True"},
           {"{{ 'it is'.title() }} {{ \"they're\".title() }} {{ 'aB'.upper() }} {{ 'aB'.lower() }} "
            "{{ 'ab'.capitalize() }}",
            "It Is They'Re AB ab Ab"},
           {"{{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ '-'.join(names) }} {{ 'ab'.replace('b', 'c') "
            "}}",
            "['a', 'b', 'c'] b-A-c ac"},
           {"{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}{{ dict.keys() | list }}"
            "{{ dict.values() | list | length }}",
            "b=1;a=[1, 'x'];items=5;quote\"=it's;['b', 'a', 'items', 'quote\"']4"}})
    EXPECT_EQ(render(one.source), one.want) << one.source;
}

TEST(JinjaTest, StatementsAndTheirScopes) {
  for (const Case& one : std::initializer_list<Case>{
           {"{% set x = 1 %}{% for i in list %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "3121"},
           {"{% if yes %}{% set x = 5 %}{% endif %}{{ x }}", "5"},
           {"{% set ns = namespace(c=0) %}{% for i in list %}{% set ns.c = ns.c + i %}{% endfor %}"
            "{{ ns.c }}",
            "6"},
           {"{% for i in list %}{{ loop.index0 }}{{ loop.index }}{{ loop.revindex }}{{ loop.first "
            "}}"
            "{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }};"
            "{% endfor %}",
            "013TrueFalse1;122FalseFalse32;231FalseTrue1;"},
           {"{% for r in rows if r.v is defined %}{{ loop.length }}{{ r.k }}{% else %}none"
            "{% endfor %}{% for r in [] %}{% else %}none{% endfor %}",
            "2x2ynone"},
           {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}"
            "{% break %}{% endif %}{{ i }}{% endfor %}",
            "023"},
           {"{% macro m(a, b='B') %}[{{ a }}{{ b }}{{ n }}{{ i }}]{% endmacro %}"
            "{% for i in [1] %}{{ m('x') }}{{ m(b=1, a=2) }}{% endfor %}",
            "[xB3][213]"},
           {"{% set a %}in{{ n }}{% set hidden = 1 %}{% endset %}{{ a }}{{ hidden is defined }}",
            "in3False"},
           {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, %}{{ t }}", "12(1,)"},
           {"{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "b"},
           {"{# comment #}!", "!"}})
    EXPECT_EQ(render(one.source), one.want) << one.source;
}

// trim_blocks and lstrip_blocks.
TEST(JinjaTest, WhitespaceIsStrippedAsInTransformers) {
  for (const Case& one :
       std::initializer_list<Case>{{"a\n  {% if yes %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
                                   {"a {% if yes %} b {% endif %}\n\nc", "a  b \nc"},
                                   {"a\n {{- n -}} \n b", "a3b"},
                                   {"a\n {%- if yes -%} \n b {% endif +%}\nc", "ab \nc"},
                                   {"a\n  {%+ if yes %}b{% endif %}", "a\n  b"},
                                   {"a\n  {# x #}\n b {#- y -#} \n c", "a\n bc"},
                                   {"a\r\nb\rc\n\n", "a\nb\nc\n"},
                                   {"{% if yes -%}\n\n  x{%- endif %}", "x"},
                                   {"  {{ n }}  \n", "  3  "}})
    EXPECT_EQ(render(one.source), one.want) << one.source;
}

TEST(JinjaTest, InvalidTemplatesFailToParse) {
  for (const Case& one : std::initializer_list<Case>{
           {"{{ n is not }}", "t.jinja: line 1: a name is expected, not }}"},
           {"{% set loop = 1 %}", "t.jinja: line 1: loop cannot be set"},
           {"{{ n | trim('a', chars='b') }}", "t.jinja: line 1: the argument chars is given twice"},
           {"{{ 1 +", "t.jinja: line 1: {{ is not closed"},
           {"{% if yes %}\nx", "t.jinja: line 2: the template ends where {% endif %} is expected"},
           {"{{ (1] }}", "t.jinja: line 1: ] where ) is expected"},
           {"{{ ä }}", "t.jinja: line 1: an unexpected character: ä"},
           {"{% break %}", "t.jinja: line 1: break is only supported in a loop"},
           {"{% endfor %}", "t.jinja: line 1: the tag endfor ends no block"}})
    EXPECT_EQ(complaint(one.source), one.want) << one.source;
}

// Refused when the template is read, even where a rendering would not come.
std::string refusal(const std::string& construct) {
  try {
    JinjaTemplate::parse("{% set text = 'a' %}\n{% if false %}\n" + construct + "{% endif %}", "t");
    return "accepted";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(JinjaTest, WhatIsNotSupportedIsRefusedAtLoad) {
  for (const char* filter : {"abs",         "attr('x')", "batch(2)",       "center",
                             "e",           "escape",    "filesizeformat", "float",
                             "forceescape", "format(1)", "groupby('x')",   "max",
                             "min",         "pprint",    "random",         "reverse",
                             "round",       "slice(2)",  "striptags",      "sum",
                             "title",       "truncate",  "urlencode",      "urlize",
                             "wordcount",   "wordwrap",  "xmlattr"})
    EXPECT_TRUE(
        refusal(std::string("{{ text | ") + filter + " }}").starts_with("t: line 3: the filter "))
        << filter;
  for (const char* test :
       {"callable", "divisibleby 2", "escaped", "even", "filter", "ge 1", "greaterthan 1", "gt 1",
        "le 1", "lessthan 1", "lower", "lt 1", "odd", "sameas 1", "test", "upper"})
    EXPECT_TRUE(
        refusal(std::string("{{ text is ") + test + " }}").starts_with("t: line 3: the test "))
        << test;
  for (const char* method :
       {"casefold",     "center",    "copy",    "count",   "encode",     "expandtabs",
        "find",         "format",    "index",   "isalnum", "isalpha",    "isdigit",
        "islower",      "isspace",   "isupper", "ljust",   "partition",  "removeprefix",
        "removesuffix", "rfind",     "rindex",  "rjust",   "rpartition", "rsplit",
        "swapcase",     "translate", "zfill"})
    EXPECT_TRUE(refusal(std::string("{{ text.") + method + "('a') }}")
                    .starts_with("t: line 3: the method "))
        << method;
  for (const char* statement :
       {"autoescape true", "block a", "call text()", "do text", "extends 'a'", "filter upper",
        "from 'a' import b", "import 'a' as b", "include 'a'", "print text", "raw", "trans",
        "with a = 1"})
    EXPECT_TRUE(
        refusal(std::string("{% ") + statement + " %}").starts_with("t: line 3: the statement "))
        << statement;
  for (const char* function : {"cycler", "joiner", "lipsum", "nope"})
    EXPECT_TRUE(
        refusal(std::string("{{ ") + function + "() }}").starts_with("t: line 3: the function "))
        << function;
  for (const char* name : {"caller", "kwargs", "self", "super", "varargs"})
    EXPECT_TRUE(refusal(std::string("{{ ") + name + " }}").starts_with("t: line 3: the name "))
        << name;
}

TEST(JinjaTest, RefusalSaysWhatToWrite) {
  const std::string page = " (docs/chat_templates.md)";
  const std::string other =
      "the line without it, in a file for data.chat_template=FILE.jinja" + page;
  for (const auto& [construct, want] : std::initializer_list<std::pair<const char*, std::string>>{
           {"{{ text | pprint }}", "the filter pprint is not supported; write " + other},
           {"{{ [1] | reverse }}", "the filter reverse is not supported; write [::-1]" + page},
           {"{{ [1] | map('nope') }}", "the filter nope is not supported; write " + other},
           {"{{ [1] | select('odd') }}", "the test odd is not supported; write x % 2 == 1" + page},
           {"{{ [1] | map(text) }}", "map needs names in quotes"},
           {"{{ [1] | selectattr(text) }}", "selectattr needs names in quotes"},
           {"{{ [1] | join('', attribute='a') }}",
            "the argument attribute of join is not supported; write map(attribute=…) before join" +
                page},
           {"{{ [1] | sort(case_sensitive=true) }}",
            "the argument case_sensitive of sort is not supported; write sort without it" + page},
           {"{{ 'ff' | int(0, 16) }}",
            "int with more than 1 arguments is not supported; write it without them" + page},
           {"{{ 'a'.splitlines(true) }}",
            "splitlines with more than 0 arguments is not supported; write it without them" + page},
           {"{{ namespace([1]) }}", "namespace takes at most 0 arguments by position"},
           {"{{ range(stop=1) }}", "range takes no arguments by name; write them by position"},
           {"{{ range(*[1]) }}", "arguments with * are not supported; write each argument"},
           {"{{ '%s' % text }}",
            "the operator % after a string is not supported; write ~ between the parts" + page},
           {"{{ 2 ** 3 }}", "the operator ** is not supported; write a product" + page},
           {"{{ 1 // 3 }}", "the operator // is not supported; write " + other},
           {"{{ 1 / 3 }}", "the operator / is not supported; write " + other},
           {"{{ +1 }}", "a value is expected, not \"+\""},
           {"{{ 1 < 2 < 3 }}", "a < b < c is not supported; write a < b and b < c"},
           {"{{ 1e3 }}",
            "a number like 1e is not supported; write it with digits and a point only"},
           {"{{ '\\U0001F600' }}", "\\U in a string is not supported; write the character or \\u"},
           {"{{ [text][0]() }}", "only functions, macros and methods can be called"},
           {"{% for i in [1] recursive %}{% endfor %}",
            "a recursive loop is not supported; write a macro that calls itself"},
           {"{% for i in [1] %}{{ loop.cycle(1) }}{% endfor %}",
            "the attribute loop.cycle is not supported; write […][loop.index0 % n]" + page},
           {"{% for i in [1] %}{{ loop.depth }}{% endfor %}",
            "the attribute loop.depth is not supported; write " + other},
           {"{% for i in [1] %}{% macro m() %}{% endmacro %}{% endfor %}",
            "a macro inside a block is not supported; write it at the top level"},
           {"{% macro m() %}{% macro k() %}{% endmacro %}{% endmacro %}",
            "a macro inside a block is not supported; write it at the top level"},
           {"{% macro m(caller) %}{% endmacro %}",
            "the name caller is not supported; write " + other},
           {"{% set x | upper %}{% endset %}",
            "set with a filter is not supported; write the filter where the name is used"},
           {"{% set x %}{% generation %}{% endgeneration %}{% endset %}",
            "generation inside a macro or a set is not supported; write it around the place where "
            "the text is printed"}})
    EXPECT_EQ(refusal(construct), "t: line 3: " + want) << construct;
}

TEST(JinjaTest, RenderingErrorsHaveTheLine) {
  for (const Case& one : std::initializer_list<Case>{
           {"\n{{ raise_exception('No ' ~ name) }}",
            "t.jinja: line 2: the template refuses: No World"},
           {"{{ 'a' + none }}", "t.jinja: line 1: str + None is not possible"},
           {"{{ missing.x }}", "t.jinja: line 1: missing is undefined"},
           {"{{ name % 'a' }}",
            "t.jinja: line 1: % after a string is not supported; write ~ between the parts"},
           {"{{ missing + 'a' }}", "t.jinja: line 1: missing is undefined"},
           {"{{ dict.b.c.d }}", "t.jinja: line 1: c is undefined"},
           {"{{ list.append(4) }}", "t.jinja: line 1: a value of kind list has no method append"},
           {"{{ missing | tojson }}", "t.jinja: line 1: tojson of missing, which is undefined"},
           {"{% for i in 5 %}{% endfor %}", "t.jinja: line 1: a value of kind int has no items"},
           {"{{ 1 % 0 }}", "t.jinja: line 1: a division by zero"},
           {"{{ x % 2 }}", "t.jinja: line 1: % of a float is not supported"},
           {"{{ 9223372036854775807 + 1 }}", "t.jinja: line 1: an integer exceeds 64 bits"},
           {"{{ n.x.y }}", "t.jinja: line 1: x is undefined"},
           {"{{ 'ß' | upper }}", "t.jinja: line 1: the other case of U+00DF is not supported"},
           {"{% set n.x = 1 %}",
            "t.jinja: line 1: n is not a namespace, so its fields cannot be set"}})
    EXPECT_EQ(complaint(one.source), one.want) << one.source;
}

TEST(JinjaTest, NoTemplateRunsEndlessly) {
  const char* kTooMany = "t.jinja: line 1: the rendering takes too many steps";
  EXPECT_EQ(
      complaint("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
      kTooMany);
  EXPECT_EQ(complaint("{% set x = 'aaaaaaaa' * 999999999999 %}"), kTooMany);
  EXPECT_EQ(complaint("{% set ns = namespace(t='ab') %}{% for i in range(99) %}"
                      "{% set ns.t = ns.t ~ ns.t %}{% endfor %}"),
            kTooMany);
  EXPECT_EQ(complaint("{% set ns = namespace(t=[1]) %}{% for i in range(999) %}"
                      "{% set ns.t = [ns.t] %}{% endfor %}"),
            "t.jinja: line 1: a value is nested more than 100 deep");
  EXPECT_EQ(complaint("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
            "t.jinja: line 1: macros or blocks are nested too deep");
  const auto many = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  for (const std::string& deep :
       {"{{ " + many("(", 100000), "{{ " + many("[", 9999) + many("]", 9999) + " }}",
        "{{ 1" + many(" + 1", 100000) + " }}", "{{ n" + many("|trim", 9999) + " }}",
        "{{ " + many("not ", 9999) + "1 }}", "{{ " + many("-", 9999) + "1 }}",
        many("{% if 1 %}", 9999), many("{% for i in list %}", 9999),
        "{{ n" + many(".a", 9999) + " }}", "{{ 1" + many(" if 1 else 1", 9999) + " }}"})
    EXPECT_THROW(JinjaTemplate::parse(deep, "deep"), InputError) << deep.substr(0, 20);
}

constexpr const char* kTooManySteps = "t.jinja: line 1: the rendering takes too many steps";

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Issue 23: each took n^2 steps, 24 s for this text.
TEST(JinjaTest, SearchTakesLinearTime) {
  const std::string texts = "{% set t = 'a' * 2000000 %}{% set s = 'a' * 1000000 ~ 'b' %}";
  for (const Case& one : std::initializer_list<Case>{{"{{ s in t }}", "False"},
                                                     {"{{ s not in t }}", "True"},
                                                     {"{{ t.split(s) | length }}", "1"},
                                                     {"{{ t.replace(s, 'x') == t }}", "True"},
                                                     {"{{ (t | replace(s, 'x')) == t }}", "True"},
                                                     {"{{ (t ~ s).split(s) | length }}", "2"}})
    EXPECT_LT(
        seconds_of([&] { EXPECT_EQ(render(texts + one.source, /*steps=*/25'000'000), one.want); }),
        5)
        << one.source;
}

// Issue 23: each character was compared with each of the others.
TEST(JinjaTest, ManyCharactersAreStrippedInLinearTime) {
  Json values = {{"chars", ""}, {"text", ""}};
  for (int code = 0x4E00; code < 0x9E00; ++code)
    values["chars"].get_ref<std::string&>() +=
        {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
         static_cast<char>(0x80 | (code & 0x3F))};
  for (int i = 0; i < 400'000; ++i) values["text"].get_ref<std::string&>() += "\u9DFF";
  const JinjaTemplate stripped = JinjaTemplate::parse(
      "<{{ ('x' ~ text ~ 'y' ~ text).rstrip(chars) | length }}"
      "{{ (text ~ 'y').strip(chars) }}{{ (text ~ 'z') | trim(chars) }}>",
      "t.jinja");
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(stripped.render(values).text, "<400002yz>"); }), 5);
}

// Issue 23: 9999 operations on 100 KB take more than 3 million steps, whatever the operation.
TEST(JinjaTest, BytesOfStringsAreCounted) {
  const std::string texts =
      "{% set t = 'a' * 100000 %}{% set u = t ~ 'b' %}{% set v = t ~ 'c' %}{% set d = {v: 1} %}";
  for (const char* operation : {"t | length",
                                "u == v",
                                "u != v",
                                "u < v",
                                "u in v",
                                "d[u]",
                                "d.get(u)",
                                "u in d",
                                "v.startswith(u)",
                                "v.endswith((u, u))",
                                "t.upper()",
                                "t | lower",
                                "t | capitalize",
                                "t.title()",
                                "t | trim",
                                "t.strip('b')",
                                "t | int",
                                "t[5]",
                                "t[5:6]",
                                "t[::-1]",
                                "t | list",
                                "t | tojson",
                                "[1, 2] | tojson(separators=(t, t))",
                                "[[1]] | tojson(indent=t)",
                                "t | indent",
                                "t.split('b')",
                                "t.split()",
                                "t.splitlines()",
                                "t.replace('b', 'c')",
                                "t | replace('b', 'c')",
                                "'b'.join([t])",
                                "[t] | join",
                                "[t] | sort",
                                "[t, t] | unique | list",
                                "t | string",
                                "t | safe",
                                "t ~ 'b'",
                                "t + 'b'",
                                "(1 | string | safe) + t",
                                "[t] | string",
                                "namespace(a=t).a ~ ''"})
    EXPECT_EQ(complaint(texts + "{% for i in range(9999) %}{% if " + operation +
                            " %}{% endif %}{% endfor %}",
                        /*steps=*/3'000'000),
              kTooManySteps)
        << operation;
  EXPECT_EQ(complaint("{% for i in range(99999) %}{% set x = strftime_now('%Y') %}{% endfor %}",
                      /*steps=*/10'000'000),
            kTooManySteps);
}

// Issue 23: names are looked up in lists.
TEST(JinjaTest, NamesAreCounted) {
  std::string sets, fields = "{% set ns = namespace() %}", named, parameters;
  for (int i = 0; i < 3000; ++i) {
    const std::string name = "a" + std::to_string(i);
    sets += "{% set " + name + " = 1 %}";
    fields += "{% set ns." + name + " = 1 %}";
    named += (named.empty() ? "" : ", ") + name + "=1";
    parameters += (parameters.empty() ? "" : ", ") + name;
  }
  EXPECT_EQ(complaint(sets), kTooManySteps);
  EXPECT_EQ(complaint(fields), kTooManySteps);
  EXPECT_EQ(complaint("{% macro m(" + parameters + ") %}{% endmacro %}{{ m(" + named + ") }}"),
            kTooManySteps);
  EXPECT_EQ(complaint("{{ " + std::string(101, 'a') + " }}"),
            "t.jinja: line 1: a name of 101 letters is not supported; shorten it to 100");
}

// Issue 23: the parser compared each argument with all others.
TEST(JinjaTest, ManyArgumentsAreParsedInLinearTime) {
  std::string source = "{{ dict(a=1";
  for (int i = 0; i < 100'000; ++i) source += ", a" + std::to_string(i) + "=1";
  EXPECT_LT(seconds_of([&] { JinjaTemplate::parse(source + ") }}", "t"); }), 5);
  EXPECT_THROW(JinjaTemplate::parse(source + ", a7=1) }}", "t"), InputError);
}

// Found by the fuzzer: a quotation from a template may be as long as the template.
TEST(JinjaTest, ErrorIsOneSentenceHoweverLongTheWord) {
  for (const std::string& source :
       {"{{ " + std::string(20000, '9') + " }}", "{{ name | " + std::string(20000, 'x') + " }}",
        std::string("{{ raise_exception('a\\nb') }}")}) {
    const std::string said = complaint(source);
    EXPECT_TRUE(said.starts_with("t.jinja: line 1: ")) << said;
    EXPECT_LE(said.size(), 1000U);
    EXPECT_EQ(said.find('\n'), said.npos) << said;
  }
}

// Found by the fuzzer: the product of quotient and divisor exceeded 64 bits.
TEST(JinjaTest, RemaindersOfTheSmallestIntegers) {
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % 3 }} {{ -9223372036854775807 % -4 }} "
                   "{{ (-9223372036854775807 - 1) % -1 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ -6 % 3 }}"),
            "1 -3 0 -2 2 0");
}

// Templates cut, joined and changed at random: each is rendered or rejected.
TEST(JinjaTest, RandomTemplatesAreRenderedOrRejected) {
  static const std::vector<std::string> kPieces = {"{{",
                                                   "}}",
                                                   "{%",
                                                   "%}",
                                                   "{%-",
                                                   "-%}",
                                                   "{#",
                                                   "#}",
                                                   " ",
                                                   "\n",
                                                   "a",
                                                   "n",
                                                   "list",
                                                   "dict",
                                                   "rows",
                                                   "name",
                                                   ".",
                                                   "[",
                                                   "]",
                                                   "(",
                                                   ")",
                                                   ":",
                                                   ",",
                                                   "|",
                                                   "~",
                                                   "+",
                                                   "-",
                                                   "*",
                                                   "**",
                                                   "//",
                                                   "%",
                                                   "==",
                                                   "<",
                                                   "'",
                                                   "\"",
                                                   "\\",
                                                   "'x'",
                                                   "0",
                                                   "1",
                                                   "-1",
                                                   "1.5",
                                                   "99999999999",
                                                   " in ",
                                                   " not ",
                                                   " is ",
                                                   " if ",
                                                   " else ",
                                                   " and ",
                                                   " or ",
                                                   "for i in list",
                                                   "endfor",
                                                   "if ",
                                                   "elif",
                                                   "endif",
                                                   "set x = ",
                                                   "set x",
                                                   "endset",
                                                   "macro m(a)",
                                                   "endmacro",
                                                   "m(1)",
                                                   "call(x) m(1)",
                                                   "endcall",
                                                   "caller(1)",
                                                   "loop(list)",
                                                   "{% for i in list recursive %}",
                                                   "generation",
                                                   "endgeneration",
                                                   "loop.index",
                                                   "namespace()",
                                                   "range(9)",
                                                   "tojson",
                                                   "join",
                                                   "map('upper')",
                                                   "select",
                                                   "length",
                                                   "trim",
                                                   "split(",
                                                   "strip()",
                                                   "items()",
                                                   "get('a')",
                                                   "raise_exception('x')",
                                                   "ä",
                                                   "\x80",
                                                   "{% raw %}",
                                                   "{% endraw %}",
                                                   "{% for i in list %}",
                                                   "{% endfor %}",
                                                   "{{ n }}",
                                                   "{% if yes %}",
                                                   "{% endif %}"};
  int rendered = 0;
  for (uint32_t round = 0; round < 20000; ++round) {
    std::string source;
    const uint32_t size = 1 + philox(5, {round, 0, 0, 0})[0] % 14;
    for (uint32_t i = 0; i < size; ++i)
      source += kPieces[philox(5, {round, 1 + i, 0, 0})[0] % kPieces.size()];
    try {
      render(source, /*steps=*/20000);
      ++rendered;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(rendered, 1000);
}

TEST(JinjaTest, DictMakesADictionary) {
  EXPECT_EQ(JinjaTemplate::parse("{{ dict(a=1, b=2) }}", "t").render(Json::object()).text,
            "{'a': 1, 'b': 2}");
}

TEST(JinjaTest, GeneratedTextIsMarked) {
  const JinjaTemplate parsed = JinjaTemplate::parse(
      "{% for i in list %}ä{% generation %}<{{ i }}>{% endgeneration %}{% endfor %}", "t.jinja");
  EXPECT_TRUE(parsed.marks_generation());
  const JinjaRendering rendering = parsed.render(kVariables);
  EXPECT_EQ(rendering.text, "ä<3>ä<1>ä<2>");
  EXPECT_EQ(rendering.generated,
            (std::vector<std::pair<int64_t, int64_t>>{{2, 5}, {7, 10}, {12, 15}}));
}

// Output of transformers; null where it raised an exception (tests/tools/make_chat_goldens.py).
TEST(JinjaTest, MacrosAndBlocksMatchJinja) {
  const Json golden = Json::parse(
      read_file(std::string(TLT_SOURCE_DIR) + "/tests/golden/chat/blocks.json", 1 << 20));
  int64_t rendered = 0;
  for (const Json& one : golden.at("cases")) {
    const auto source = one[0].get<std::string>();
    Json got;
    try {
      got = JinjaTemplate::parse(source, "t.jinja").render(golden.at("variables")).text;
    } catch (const InputError& error) {
      EXPECT_TRUE(one[1].is_null()) << source << ": " << error.what();
      continue;
    }
    EXPECT_EQ(got, one[1]) << source;
    ++rendered;
  }
  EXPECT_EQ(rendered, 19);
}

}  // namespace
}  // namespace tlt::chat_template
