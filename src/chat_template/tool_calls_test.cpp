// SPDX-License-Identifier: Apache-2.0
#include "chat_template/tool_calls.h"

#include <gtest/gtest.h>

namespace tlt::chat_template {
namespace {

// The calls of a text, as "content|name(arguments)|…".
std::string parsed(ToolCallFormat format, std::string_view text) {
  const ParsedResponse response = parse_tool_calls(format, text);
  std::string shown = response.content;
  for (const ToolCall& call : response.calls)
    shown += "|" + call.name + "(" + call.arguments.dump() + ")";
  return shown;
}

constexpr auto kHermes = ToolCallFormat::kHermes;
constexpr auto kLlama3 = ToolCallFormat::kLlama3;
constexpr auto kJson = ToolCallFormat::kJson;

TEST(ToolCallsTest, HermesBlocksAreCallsAfterContent) {
  EXPECT_EQ(parsed(kHermes,
                   "I add.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 2, "
                   "\"a\": 1}}\n</tool_call>"),
            "I add.\n|add({\"b\":2,\"a\":1})");
  EXPECT_EQ(parsed(kHermes,
                   "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
                   "<tool_call>{\"name\":\"g\",\"arguments\":\"{\\\"x\\\": 1}\"}"),
            "|f({})|g({\"x\":1})");
  EXPECT_EQ(parsed(kHermes, "no call"), "no call");
}

TEST(ToolCallsTest, LlamaCallsMayFollowATagAndEachOther) {
  EXPECT_EQ(parsed(kLlama3, "{\"name\": \"f\", \"parameters\": {\"s\": \"a;}\\\"\"}}"),
            "|f({\"s\":\"a;}\\\"\"})");
  EXPECT_EQ(parsed(kLlama3,
                   "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": "
                   "\"g\", \"arguments\": {\"x\": []}}\n"),
            "|f({})|g({\"x\":[]})");
  EXPECT_EQ(parsed(kLlama3, "The answer is {1}"), "The answer is {1}");
}

TEST(ToolCallsTest, JsonIsOneCallOrAList) {
  EXPECT_EQ(parsed(kJson, " {\"name\": \"f\"}"), "|f({})");
  EXPECT_EQ(parsed(kJson, "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}]"),
            "|f({})|g({})");
}

TEST(ToolCallsTest, WhatDoesNotParseStaysText) {
  const std::string deep = "<tool_call>" + std::string(100'000, '[');
  EXPECT_EQ(parsed(kHermes, deep), deep);
  for (const char* text :
       {"<tool_call>{\"name\": \"f\", \"arguments\": {</tool_call>", "<tool_call>",
        "<tool_call>{\"name\": 1}</tool_call>", "<tool_call>[]</tool_call>",
        "a<tool_call>{\"name\": \"f\"}</tool_call><tool_call>no</tool_call>"})
    EXPECT_EQ(parsed(kHermes, text), text);
  for (const char* text : {"", "{", "[]", "{\"name\": \"\"}", "{\"name\": \"f\"} and",
                           "{\"name\": \"f\", \"arguments\": 3}", "{}{}", "<|python_tag|>"}) {
    EXPECT_EQ(parsed(kJson, text), text);
    EXPECT_EQ(parsed(kLlama3, text), text);
  }
}

// Whatever prefix of a response has arrived, what is shown is a prefix of the final content.
TEST(ToolCallsTest, ContentBytesAreAPrefixOfTheContent) {
  const std::pair<ToolCallFormat, std::string> texts[] = {
      {kHermes, "1 < 2 <tool <tool_call>{\"name\": \"f\"}</tool_call> after"},
      {kHermes, "<tool_call"},
      {kLlama3, "  <|python_tag|>{\"name\": \"f\"}"},
      {kLlama3, "<|python is a snake"},
      {kJson, "\n[{\"name\": \"f\"}]"},
      {kJson, "text {\"name\": \"f\"}"}};
  for (const auto& [format, text] : texts) {
    const std::string content = parse_tool_calls(format, text).content;
    size_t before = 0;
    for (size_t size = 0; size <= text.size(); ++size) {
      const size_t bytes = content_bytes(format, std::string_view(text).substr(0, size));
      EXPECT_LE(bytes, size);
      EXPECT_GE(bytes, before) << "streamed text cannot be taken back: " << text;
      EXPECT_TRUE(content.starts_with(text.substr(0, bytes))) << text << ", " << size;
      before = bytes;
    }
  }
  EXPECT_EQ(content_bytes(kHermes, "a <tool"), 2u);
  EXPECT_EQ(content_bytes(kJson, "some text"), 9u);
}

TEST(ToolCallsTest, FormatIsThatOfTheTemplate) {
  const std::pair<const char*, ToolCallFormat> cases[] = {{"qwen2.5", kHermes},
                                                          {"qwen3", kHermes},
                                                          {"llama3.1", kLlama3},
                                                          {"llama3.2", kLlama3},
                                                          {"chatml", kJson}};
  for (const auto& [name, format] : cases) {
    const std::string file =
        std::string(TLT_SOURCE_DIR) + "/tests/data/chat_templates/" + name + ".jinja";
    EXPECT_EQ(find_tool_call_format(ChatTemplate::read(file, "")), format) << name;
  }
  EXPECT_EQ(parse_tool_call_format("hermes"), kHermes);
  EXPECT_EQ(parse_tool_call_format("llama3_json"), kLlama3);
  EXPECT_EQ(parse_tool_call_format("json"), kJson);
  EXPECT_EQ(parse_tool_call_format("pythonic"), std::nullopt);
}

}  // namespace
}  // namespace tlt::chat_template
