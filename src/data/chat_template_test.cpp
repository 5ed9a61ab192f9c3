// SPDX-License-Identifier: Apache-2.0
#include "chat_template/chat_template.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/checksum.h"
#include "base/files.h"
#include "base/json_lines.h"
#include "base/local_time.h"
#include "tests/support/processor_time.h"
#include "tests/support/test_folder.h"
#include "tokenizer/tokenizer.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

const std::string kChatData = std::string(TLT_SOURCE_DIR) + "/tests/";

std::string digest(const std::string& text) { return sha256(text).substr(0, 16); }

std::vector<Json> conversations() {
  JsonLinesReader reader(kChatData + "golden/chat/conversations.jsonl");
  std::vector<Json> rows;
  for (Json row; reader.try_next(row);) rows.push_back(row);
  return rows;
}

// Output of transformers; "!" where it raised an exception.
class ChatGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ChatGoldenTest, RendersAndEncodesAsTransformers) {
  static const tokenizer::Tokenizer kTokenizer =
      tokenizer::Tokenizer::load(kChatData + "golden/tokenizers/llama3_style");
  static const std::vector<Json> kRows = conversations();
  const Json golden =
      Json::parse(read_file(kChatData + "golden/chat/" + GetParam() + ".json", 1 << 22));
  const auto chat_template = chat_template::ChatTemplate::parse(
      read_file(kChatData + "data/chat_templates/" + GetParam() + ".jinja", 1 << 20), GetParam(),
      golden.at("special"));
  ASSERT_GE(kRows.size(), 300U);
  int64_t rendered = 0;
  for (size_t i = 0; i < kRows.size(); ++i) {
    const Json& row = kRows[i];
    const chat_template::Chat chat{
        .messages = row.at("messages"),
        .tools = row.at("tools"),
        .add_generation_prompt = row.at("add_generation_prompt").get<bool>(),
        .variables = row.at("variables")};
    const std::string want = golden.at("texts")[i];
    chat_template::JinjaRendering got;
    try {
      got = chat_template.render(chat, "row",
                                 {.now = local_time(golden.at("now").get<std::time_t>())});
    } catch (const InputError& error) {
      EXPECT_EQ(want, "!") << "row " << i << ": " << error.what();
      continue;
    }
    ++rendered;
    EXPECT_EQ(digest(got.text), want) << "row " << i << ": " << got.text;
    std::string ids;
    for (const int32_t id : kTokenizer.encode(got.text))
      ids += (ids.empty() ? "" : ",") + std::to_string(id);
    EXPECT_EQ(digest(ids), golden.at("tokens")[i].get<std::string>()) << "row " << i;
    if (golden.at("examples").contains(std::to_string(i))) {
      EXPECT_EQ(got.text, golden.at("examples").at(std::to_string(i)).get<std::string>());
    }
    std::vector<int64_t> spans;
    for (const auto& [begin, end] : got.generated) spans.insert(spans.end(), {begin, end});
    if (chat_template.marks_generation(chat)) {
      EXPECT_EQ(Json(spans), golden.at("generated")[i]) << "row " << i;
    }
  }
  EXPECT_GT(rendered, 200);
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatGoldenTest,
                         ::testing::Values("chatml", "chatml_generation", "deepseek_r1_distill",
                                           "llama3.1", "llama3.2", "mistral_nemo", "phi3.5",
                                           "qwen2.5", "qwen3"));

// docs/chat_templates.md: a few million steps for a megabyte.
TEST_P(ChatGoldenTest, MegabyteIsFarFromTheLimit) {
  const Json golden =
      Json::parse(read_file(kChatData + "golden/chat/" + GetParam() + ".json", 1 << 22));
  const auto chat_template = chat_template::ChatTemplate::parse(
      read_file(kChatData + "data/chat_templates/" + GetParam() + ".jinja", 1 << 20), GetParam(),
      golden.at("special"));
  const std::string text(500'000, 'a');
  const Json messages = {{{"role", "user"}, {"content", text}},
                         {{"role", "assistant"}, {"content", text}},
                         {{"role", "user"}, {"content", "b"}}};
  EXPECT_GT(
      chat_template
          .render({.messages = messages, .add_generation_prompt = true}, "row",
                  {.steps = 10'000'000, .now = local_time(golden.at("now").get<std::time_t>())})
          .text.size(),
      1'000'000U);
}

const Json kHello = Json::parse(R"([{"role": "user", "content": "Hi"}])");

std::string render_of(const TestFolder& folder, const Json& tools = nullptr) {
  return chat_template::ChatTemplate::find(folder.path())
      ->render({.messages = kHello, .tools = tools}, "row")
      .text;
}

TEST(ChatTemplateTest, IsFoundWhereTransformersFindsIt) {
  const TestFolder folder;
  EXPECT_FALSE(chat_template::ChatTemplate::find(folder.path()).has_value());
  const std::string config = folder / "tokenizer_config.json";
  write_file_atomic(config, R"({"bos_token": {"content": "<s>"}, "eos_token": null})");
  EXPECT_FALSE(chat_template::ChatTemplate::find(folder.path()).has_value());
  write_file_atomic(
      config,
      R"({"bos_token": {"content": "<s>"}, "chat_template": "1{{ bos_token }}{{ eos_token }}"})");
  EXPECT_EQ(render_of(folder), "1<s>");
  write_file_atomic(folder / "special_tokens_map.json", R"({"eos_token": "</s>"})");
  EXPECT_EQ(render_of(folder), "1<s></s>");
  write_file_atomic(config, R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                                  {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(render_of(folder), "plain");
  EXPECT_EQ(render_of(folder, Json::array({{{"type", "function"}}})), "tools");
  write_file_atomic(folder / "chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(render_of(folder), "json");
  write_file_atomic(folder / "chat_template.jinja", "file");
  EXPECT_EQ(render_of(folder), "file");
  std::filesystem::create_directory(folder / "additional_chat_templates");
  write_file_atomic(folder / "additional_chat_templates/tool_use.jinja", "more");
  EXPECT_EQ(render_of(folder, Json::array({{{"type", "function"}}})), "more");
}

// Issue 23: an ordered object of n members takes n^2 comparisons; 100,000 took 27 s, so these would
// take minutes.
TEST(ChatTemplateTest, ManyMembersAreReadInLinearTime) {
  constexpr int kMembers = 300'000;
  const TestFolder folder;
  std::string config = R"({"chat_template": "{{ messages[0].a7 }}")";
  Json message = {{"role", "user"}};
  auto& fields = message.get_ref<Json::object_t&>();
  for (int i = 0; i < kMembers; ++i) {
    const std::string name = "a" + std::to_string(i);
    config += ", \"" + name + "\": 0";
    fields.emplace_back(name, i);
  }
  write_file_atomic(folder / "tokenizer_config.json", config + "}");
  std::string text;
  EXPECT_LT(tests::processor_seconds([&] {
              text = chat_template::ChatTemplate::find(folder.path())
                         ->render({.messages = Json::array({message})}, "row")
                         .text;
            }),
            tests::kFarFromQuadratic);
  EXPECT_EQ(text, "7");
}

std::string complaint(const std::string& source, const Json& messages) {
  try {
    return chat_template::ChatTemplate::parse(source, "chat.jinja", Json::object())
        .render({.messages = messages}, "data.jsonl:3")
        .text;
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(ChatTemplateTest, ErrorNamesFileRowAndLine) {
  EXPECT_EQ(complaint("\n{{ raise_exception('No system') }}", kHello),
            "data.jsonl:3: chat.jinja: line 2: the template refuses: No system");
  EXPECT_EQ(complaint("", Json::array()),
            "data.jsonl:3: the prompt must be a text or a list of messages");
  EXPECT_EQ(complaint("", Json::parse(R"([{"content": "x"}])")),
            "data.jsonl:3: a message must be {\"role\": \"…\", \"content\": \"…\"}, not "
            "{\"content\":\"x\"}");
}

TEST(ChatTemplateTest, MessagesArePreparedAsTransformersDoes) {
  const Json messages = Json::parse(
      R"([{"role": "assistant", "content": null, "reasoning": "why", "tool_calls": null}])");
  EXPECT_EQ(
      complaint("{{ messages[0] | tojson }}", messages),
      R"({"thinking": "why", "role": "assistant", "reasoning": "why", "reasoning_content": "why"})");
  const Json thinking = Json::parse(
      R"([{"role": "assistant", "thinking": "a", "reasoning_content": "b", "content": "c"}])");
  EXPECT_EQ(complaint("{{ messages[0] | tojson }}", thinking),
            R"({"thinking": "a", "role": "assistant", "reasoning_content": "b", "content": "c"})");
}

TEST(ChatTemplateTest, VariablesAreTomlOrJson) {
  EXPECT_EQ(chat_template::parse_template_variables("{}"), Json::object());
  const Json want = Json::parse(R"({"a": 1, "b": [true, "x"], "c": {"d": 1.5}})");
  EXPECT_EQ(chat_template::parse_template_variables(want.dump()), want);
  EXPECT_EQ(chat_template::parse_template_variables("{a = 1, b = [true, 'x'], c = {d = 1.5}}"),
            want);
  EXPECT_EQ(chat_template::parse_template_variables("{enable_thinking=false}").dump(),
            R"({"enable_thinking":false})");
  for (const char* text : {"", "5", "{", "[1]", "{a = 1}\nb = 2", "{a = 2024-01-01}"})
    EXPECT_THROW(chat_template::parse_template_variables(text), InputError) << text;
}

}  // namespace
}  // namespace tlt::data
