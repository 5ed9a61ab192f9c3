// SPDX-License-Identifier: Apache-2.0
#include "run/report/html_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tlt::run {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Texts that end a script element, start a comment in one, or look like a place of the page.
constexpr const char* kHostileTexts[] = {"</script><script>alert(1)</script>",
                                         "<!--<script>",
                                         "]]>",
                                         "{{script}} {{data}}",
                                         "\xE2\x80\xA8\xE2\x80\xA9",
                                         "a&lt;b",
                                         "\"><img src=x onerror=alert(1)>"};

int count_of(std::string_view text, std::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(HtmlPageTest, JsonInAScriptHasNoMarkupAndKeepsItsValue) {
  for (const char* text : kHostileTexts) {
    const nlohmann::json value = {{text, text}};
    const std::string json = script_json(value);
    for (const char* part : {"<", ">", "&", "\xE2\x80\xA8", "\xE2\x80\xA9"})
      EXPECT_THAT(json, Not(HasSubstr(part))) << text;
    EXPECT_EQ(nlohmann::json::parse(json), value);
  }
}

TEST(HtmlPageTest, InvalidUtf8BecomesAReplacementCharacter) {
  EXPECT_EQ(script_json("caf\xC3"), "\"caf\xEF\xBF\xBD\"");
  EXPECT_EQ(html_text("caf\xC3"), "caf\xEF\xBF\xBD");
}

TEST(HtmlPageTest, TextHasNoMarkup) {
  EXPECT_EQ(html_text("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
}

TEST(HtmlPageTest, NumbersKeepAllDigits) {
  const nlohmann::json numbers = {0.1, 1e-300, 1.0 / 3, 2.5e17, 12345678901234567.0};
  EXPECT_EQ(nlohmann::json::parse(script_json(numbers)), numbers);
}

TEST(HtmlPageTest, HostileTextsAddNoElement) {
  const std::string harmless = html_page("title", "data");
  for (const char* text : kHostileTexts) {
    const std::string page = html_page(text, text);
    for (const char* element : {"<script", "</script", "<!--", "<img", "</title"})
      EXPECT_EQ(count_of(page, element), count_of(harmless, element)) << text;
  }
}

TEST(HtmlPageTest, PageIsComplete) {
  const std::string page = html_page("my run", {{"runs", 1}});
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("<title>my run · tlt report</title>"));
  EXPECT_THAT(page, HasSubstr("id=\"data\">{\"runs\":1}</script>"));
  EXPECT_THAT(page, HasSubstr("The MIT License (MIT)"));
  EXPECT_THAT(page, HasSubstr("Leon Sorokin"));
  EXPECT_THAT(page, HasSubstr("var uPlot="));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_TRUE(page.ends_with("</html>\n\n") || page.ends_with("</html>\n"));
}

// The browser runs the script only if its hash is right (tests/report/report_test.py).
TEST(HtmlPageTest, PolicyAllowsOneScriptAndNoNetwork) {
  const std::string page = html_page("my run", 1);
  EXPECT_THAT(page, testing::ContainsRegex("default-src 'none'; .*script-src 'sha256-[^']{43}='"));
  EXPECT_EQ(count_of(page, " src=\"http"), 0);
  EXPECT_EQ(count_of(page, "<link rel=\"stylesheet"), 0);
}

}  // namespace
}  // namespace tlt::run
