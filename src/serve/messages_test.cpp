// SPDX-License-Identifier: Apache-2.0
#include "serve/messages.h"

#include <gtest/gtest.h>

#include "serve/api_error.h"

namespace tlt::serve {
namespace {

using MessageJson = nlohmann::ordered_json;

TEST(MessagesTest, PartsBecomeAStringAndArgumentsAnObject) {
  const MessageJson messages = MessageJson::parse(R"([
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "1", "type": "function", "function":
        {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]},
    {"role": "tool", "content": "3"}])");
  const MessageJson made = template_messages(messages);
  EXPECT_EQ(made[0]["content"], "a\nb");
  EXPECT_EQ(made[1]["tool_calls"][0]["function"]["arguments"].dump(), R"({"z":1,"a":2})");
  EXPECT_EQ(made[2], messages[2]);
}

TEST(MessagesTest, WhatTemplatesCannotRenderIsRefused) {
  for (const char* text :
       {"null", "[]", "{}", "[1]", R"([{"content": "no role"}])", R"([{"role": 1, "content": ""}])",
        R"([{"role": "user", "content": 5}])",
        R"([{"role": "user", "content": [{"type": "image"}]}])",
        R"([{"role": "user", "content": ["text"]}])", R"([{"role": "a", "tool_calls": {}}])",
        R"([{"role": "a", "tool_calls": [{"function": {}}]}])",
        R"([{"role": "a", "tool_calls": [{"function": {"name": "f", "arguments": "no"}}]}])"})
    EXPECT_THROW(template_messages(MessageJson::parse(text)), ApiError) << text;
}

TEST(MessagesTest, ToolsAreFunctionsWithNames) {
  EXPECT_NO_THROW(check_tools(MessageJson::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])")));
  for (const char* text :
       {"{}", "[1]", R"([{"type": "function"}])", R"([{"type": "web", "function": {"name": "f"}}])",
        R"([{"type": "function", "function": {}}])"})
    EXPECT_THROW(check_tools(MessageJson::parse(text)), ApiError) << text;
}

}  // namespace
}  // namespace tlt::serve
