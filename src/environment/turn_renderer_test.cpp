// SPDX-License-Identifier: Apache-2.0
#include "environment/turn_renderer.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt::environment {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kTurns =
    R"({%- for m in messages %}{{- '<' + m.role + '>' + m.content + '<end>\n' }}
{%- endfor %}{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %})";

// A tokenizer of single characters, and <end> with id 300.
tokenizer::Tokenizer tokenizer_of_bytes() {
  Json vocabulary = Json::object();
  for (int i = 32; i < 127; ++i) vocabulary[std::string(1, static_cast<char>(i))] = i;
  vocabulary["\n"] = 10;
  const Json end = {{"id", 300},       {"content", "<end>"}, {"single_word", false},
                    {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                    {"special", true}};
  const Json file = {{"version", "1.0"},
                     {"added_tokens", {end}},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", nullptr},
                     {"post_processor", nullptr},
                     {"decoder", {{"type", "Fuse"}}},
                     {"model",
                      {{"type", "BPE"},
                       {"unk_token", nullptr},
                       {"vocab", vocabulary},
                       {"merges", Json::array()}}}};
  return tokenizer::Tokenizer::parse(file.dump(), "bytes");
}

class TurnRendererTest : public ::testing::Test {
 protected:
  TurnRenderer renderer(const std::string& source, const std::string& format = "hermes") const {
    std::ofstream(folder_ / "turns.jinja") << source;
    data::DataOptions data;
    data.chat_template = folder_ / "turns.jinja";
    EnvironmentOptions options;
    options.tool_calls = format;
    const std::vector<int32_t> stop = {300};
    return {data, options, tokenizer_, stop};
  }
  std::string text(const std::vector<int32_t>& tokens) const { return tokenizer_.decode(tokens); }

  const TestFolder folder_;
  const tokenizer::Tokenizer tokenizer_ = tokenizer_of_bytes();
};

const Json kUser = {{"role", "user"}, {"content", "1+1"}};
const Json kAnswer = {{"role", "assistant"}, {"content", "2"}};
const Json kTool = {{"role", "tool"}, {"content", "ok"}};

TEST_F(TurnRendererTest, PiecesAreTheWholeConversation) {
  const TurnRenderer turns = renderer(kTurns);
  const std::string opening =
      text(turns.open({.messages = Json::array({kUser})}, Json::array({kTool}), "x"));
  EXPECT_EQ(opening, "<tool>ok<end>\n<assistant>");
  // The turn was sampled with its stop token, so only the rest of the template's closing follows.
  EXPECT_EQ(text(turns.observe({.messages = Json::array({kUser, kAnswer})},
                               Json::array({kTool, kUser}), 300, "x")),
            "\n<tool>ok<end>\n<user>1+1<end>\n<assistant>");
  // A turn that ended at a stop string gets the stop token too.
  EXPECT_EQ(text(turns.observe({.messages = Json::array({kUser, kAnswer})}, Json::array({kTool}),
                               '2', "x")),
            "<end>\n<tool>ok<end>\n<assistant>");
}

TEST_F(TurnRendererTest, PromptIsTheConversationWithoutATurn) {
  const TurnRenderer turns = renderer(kTurns);
  EXPECT_EQ(text(turns.prompt({.messages = Json::array({kUser, kAnswer})}, "x")),
            "<user>1+1<end>\n<assistant>2<end>\n");
  const Json large = {{"role", "user"}, {"content", std::string(600, '1')}};
  EXPECT_THAT(thrown_message<InputError>(
                  [&] { turns.prompt({.messages = Json::array({large})}, "the prompt"); }),
              AllOf(HasSubstr("the prompt"), HasSubstr("data.max_prompt_length is 512")));
  EXPECT_THAT(
      thrown_message<InputError>([&] { turns.prompt({.messages = Json::array({7})}, "x"); }),
      HasSubstr("x"));
}

// What else a format may have is in chat_template/tool_calls_test.cpp.
TEST_F(TurnRendererTest, EachFormatHasItsCalls) {
  const std::pair<const char*, std::string> kinds[] = {
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>"},
      {"llama3_json", "{\"name\": \"f\", \"parameters\": {\"x\": 1}}"},
      {"json", "[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]"}};
  for (const auto& [format, said] : kinds) {
    const Json message = renderer(kTurns, format).message(tokenizer_.encode(said));
    ASSERT_EQ(message["tool_calls"].size(), 1u) << format << ": " << message;
    EXPECT_EQ(message["tool_calls"][0]["function"],
              (Json{{"name", "f"}, {"arguments", {{"x", 1}}}}))
        << format;
  }
}

TEST_F(TurnRendererTest, ToolCallsAreParsedAndOthersAreText) {
  const TurnRenderer turns = renderer(kTurns);
  const auto message = [&](const std::string& said) {
    std::vector<int32_t> tokens = tokenizer_.encode(said);
    tokens.push_back(300);
    return turns.message(tokens);
  };
  const Json called =
      message("Let me see. <tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>");
  EXPECT_EQ(called["content"], "Let me see. ");
  EXPECT_EQ(called["tool_calls"][0]["function"], (Json{{"name", "f"}, {"arguments", {{"x", 1}}}}));
  const std::string broken = "<tool_call>{\"name\": \"f\", </tool_call>";
  EXPECT_EQ(message(broken), (Json{{"role", "assistant"}, {"content", broken}}));
}

TEST_F(TurnRendererTest, TemplateThatChangesEarlierMessagesIsRefused) {
  const std::string unstable =
      "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_THAT(thrown_message<InputError>([&] { renderer(unstable); }),
              AllOf(HasSubstr("turns.jinja"), HasSubstr("differently once more messages follow")));
  EXPECT_THAT(thrown_message<InputError>([&] { renderer("{{ messages | length }}"); }),
              HasSubstr("does not write the assistant's messages"));
}

// Stable for tools only, like a template that drops earlier thoughts when the user speaks.
TEST_F(TurnRendererTest, MessageThatMakesTheTemplateUnstableIsRefused) {
  const std::string forgets =
      "{%- set user = (messages | selectattr('role', 'equalto', 'user') | list) | length %}"
      "{%- for m in messages %}{%- if m.role != 'assistant' or user < 2 %}{{- m.content }}"
      "{%- endif %}{%- endfor %}";
  const TurnRenderer turns = renderer(forgets);
  EXPECT_EQ(text(turns.observe({.messages = Json::array({kUser, kAnswer})}, Json::array({kTool}),
                               '2', "x")),
            "ok");
  EXPECT_THAT(thrown_message<InputError>([&] {
                turns.observe({.messages = Json::array({kUser, kAnswer})}, Json::array({kUser}),
                              '2', "turn 1");
              }),
              AllOf(HasSubstr("turn 1"), HasSubstr("role user")));
}

}  // namespace
}  // namespace tlt::environment
