// SPDX-License-Identifier: Apache-2.0
#include "base/local_time.h"
#include "chat_template/chat_template.h"
#include "chat_template/jinja.h"
#include "tests/support/fuzz.h"

namespace tlt::tests {
namespace {

using Json = nlohmann::ordered_json;

const std::string kTests = std::string(TLT_SOURCE_DIR) + "/tests/";

const std::vector<std::string> kJinjaWords = {"{{",
                                              "}}",
                                              "{%",
                                              "%}",
                                              "{%-",
                                              "-%}",
                                              "{#",
                                              "#}",
                                              "{% if ",
                                              "{% for x in ",
                                              "{% endif %}",
                                              "{% endfor %}",
                                              "{% set ",
                                              "{% endset %}",
                                              "{% macro f(x, y=1) %}",
                                              "{% endmacro %}",
                                              "{% call(x) f(1) %}",
                                              "{% endcall %}",
                                              "{{ caller(1) }}",
                                              "{% for i in l recursive %}",
                                              "{{ loop(l) }}",
                                              "{{ f(1) }}",
                                              "{% else %}",
                                              "{% elif x %}",
                                              "{% break %}",
                                              "{% continue %}",
                                              "{% raw %}",
                                              "{% endraw %}",
                                              "{% generation %}",
                                              "{% endgeneration %}",
                                              "{% filter upper %}",
                                              "{% endfilter %}",
                                              " is defined",
                                              " not in ",
                                              " and ",
                                              " or ",
                                              "namespace(a=1)",
                                              "loop.index",
                                              "loop.previtem",
                                              "loop.cycle(1, 2)",
                                              "messages",
                                              "messages[0]",
                                              "['content']",
                                              "[::-1]",
                                              "[1:]",
                                              ".items()",
                                              ".split('a')",
                                              ".strip()",
                                              ".format(1)",
                                              ".join(['a'])",
                                              ".replace('a', 'bb')",
                                              ".center(99)",
                                              ".zfill(9)",
                                              ".expandtabs(8)",
                                              ".translate({})",
                                              ".title()",
                                              " | tojson(indent=2)",
                                              " | length",
                                              " | trim",
                                              " | join(',')",
                                              " | map('upper')",
                                              " | selectattr('role', 'equalto', 'user')",
                                              " | list",
                                              " | sort",
                                              " | unique",
                                              " | default('d')",
                                              " | int",
                                              " | float",
                                              " | round(1)",
                                              " | indent(2)",
                                              " | replace('a', 'b')",
                                              " | dictsort",
                                              " | reverse",
                                              " | sum",
                                              " | batch(2)",
                                              " | format('a')",
                                              "range(10)",
                                              "range(999999999)",
                                              "raise_exception('no')",
                                              "strftime_now('%d %b %Y')",
                                              "dict(a=1)",
                                              "cycler(1)",
                                              "'a'",
                                              "\"\\u00e9\"",
                                              "%s",
                                              "%d",
                                              "()",
                                              "'%s%d' % (1,)",
                                              "'%s' % ",
                                              "'%*d' % (9, 1)",
                                              "'%.999999999f' % 1",
                                              "'%999999999d' % 1",
                                              " ** ",
                                              "9 ** 9 ** 9",
                                              " // ",
                                              " % ",
                                              " ~ ",
                                              "none",
                                              "true",
                                              "(1,)",
                                              "{'a': 1}",
                                              "[[1], 2]",
                                              "(",
                                              ")",
                                              "[",
                                              "]",
                                              "{",
                                              "}",
                                              "lambda",
                                              "self",
                                              "__class__",
                                              "\xc3\xa9",
                                              "\n"};

// The string literals of a source file that are templates.
std::vector<std::string> templates_of(const std::string& source) {
  std::vector<std::string> found;
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '"') continue;
    text.clear();
    for (++i; i < source.size() && source[i] != '"' && source[i] != '\n'; ++i) {
      if (source[i] == '\\' && ++i < source.size())
        text += source[i] == 'n' ? '\n' : source[i];
      else
        text += source[i];
    }
    if (text.find("{{") != text.npos || text.find("{%") != text.npos) found.push_back(text);
  }
  return found;
}

// Conversations, and the variables of the templates in jinja_test.cpp.
const std::vector<Json>& variables() {
  static const std::vector<Json> kAll = [] {
    std::vector<Json> all = {Json::parse(R"({
      "name": "World", "n": 3, "x": 1.5, "yes": true, "nothing": null, "text": "  a,b,,c \n",
      "list": [3, 1, 2], "names": ["b", "A", "c"], "umlaut": "äöü", "messages": [],
      "dict": {"b": 1, "a": [1, "x"], "items": 5, "quote\"": "it's"},
      "rows": [{"k": "x", "v": 1}, {"k": "y", "v": 2}, {"k": "x"}]})")};
    std::istringstream lines(read_text(kTests + "golden/chat/conversations.jsonl"));
    for (std::string line; std::getline(lines, line) && all.size() < 8;) {
      all.push_back(Json::parse(line));
      all.back().update({{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    }
    return all;
  }();
  return kAll;
}

// "  Ab1, 2\n" is " a0, 0\n": a run of letters, digits or other bytes counts as one.
std::string shape_of(const std::string& text) {
  std::string shape;
  for (size_t i = 0; i < text.size() && shape.size() < 60; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const char kind = std::isalpha(byte) || byte >= 0x80 ? 'a' : std::isdigit(byte) ? '0' : text[i];
    if (shape.empty() || shape.back() != kind) shape += kind;
  }
  return shape;
}

std::string render(const std::string& source) {
  const auto parsed = chat_template::JinjaTemplate::parse(source, "t.jinja");
  std::string sketch, refusal;
  int rendered = 0;
  for (const Json& values : variables()) {
    try {
      const auto made = parsed.render(values, {.steps = 100'000, .now = local_time(1699963200)});
      for (const auto& [begin, end] : made.generated)
        TLT_CHECK(begin <= end && end <= std::ssize(made.text), begin, " ", end);
      if (++rendered == 1) sketch = shape_of(made.text);
    } catch (const InputError& error) {
      refusal = error.what();
    }
  }
  TLT_CHECK_INPUT(rendered > 0, refusal);
  return sketch;
}

TEST(JinjaFuzzTest, TemplatesRenderOrAreRejected) {
  FuzzPlan plan{.name = "jinja", .dictionary = kJinjaWords, .inputs = 6000, .max_bytes = 1 << 15};
  plan.corpus = templates_of(read_text(TLT_SOURCE_DIR "/src/chat_template/jinja_test.cpp"));
  ASSERT_GT(plan.corpus.size(), 100U);
  for (const auto& file : std::filesystem::directory_iterator(kTests + "data/chat_templates"))
    plan.corpus.push_back(read_text(file.path()));
  std::sort(plan.corpus.begin(), plan.corpus.end());
  fuzz(plan, render);
}

}  // namespace
}  // namespace tlt::tests
