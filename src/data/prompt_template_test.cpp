// SPDX-License-Identifier: Apache-2.0
#include "data/prompt_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

const Json kRow =
    Json::parse(R"({"question": "1+1?", "level": 5, "extra": {"hint": "two"}, "a.b": "dotted"})");

std::string render(const char* format) {
  return PromptTemplate(format).render(kRow, "data.jsonl:3");
}

TEST(PromptTemplateTest, FieldsAreInserted) {
  EXPECT_EQ(render("Q: {question}\nA:"), "Q: 1+1?\nA:");
  EXPECT_EQ(render("{level}{extra.hint}{a.b}{extra}"), "5twodotted{\"hint\":\"two\"}");
  EXPECT_EQ(render("no field"), "no field");
  EXPECT_EQ(render("\\boxed{{{level}}}"), "\\boxed{5}");
}

TEST(PromptTemplateTest, SingleBraceIsAnError) {
  for (const char* format : {"{", "}", "a {question", "question}", "{}", "{a{b}}", "{{{"}) {
    EXPECT_THROW(PromptTemplate{format}, InputError) << format;
  }
}

TEST(PromptTemplateTest, MissingFieldIsNamedWithItsPlace) {
  try {
    render("{answer}");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "data.jsonl:3: no field \"answer\"; set data.prompt_template (the row has: "
                 "question, level, extra, a.b)");
  }
}

}  // namespace
}  // namespace tlt::data
