// ChoiceText and AnswerWriter: texts, tool calls and logprobs, whole and streamed.
//
// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_writer.h"

#include <gtest/gtest.h>

#include "serve/choice_text.h"

namespace tlt::serve {
namespace {

using Json = nlohmann::json;
using rollout::FinishReason;

const tokenizer::Tokenizer& byte_tokenizer() {
  static const auto kTokenizer = tokenizer::Tokenizer::load(
      std::string(TLT_SOURCE_DIR) + "/tests/golden/tokenizers/llama3_style");
  return kTokenizer;
}

std::vector<int32_t> encode(const std::string& text) { return byte_tokenizer().encode(text); }

int32_t eot() { return byte_tokenizer().id_of("<|eot_id|>"); }

// The text of a response whose tokens arrive `step` at a time.
std::string text_in_steps(const TextRule& rule, const std::vector<int32_t>& tokens, size_t step,
                          FinishReason reason) {
  ChoiceText text(rule);
  std::string all;
  for (size_t begin = 0; begin < tokens.size(); begin += step) {
    const size_t count = std::min(step, tokens.size() - begin);
    const bool is_last = begin + count == tokens.size();
    all += text.push(std::span(tokens).subspan(begin, count),
                     is_last ? std::optional(reason) : std::nullopt);
  }
  return all;
}

TEST(ChoiceTextTest, TextEndsBeforeAStopStringWhateverThePieces) {
  const TextRule rule{.tokenizer = byte_tokenizer(), .stop_tokens = {}, .stop = {"ENDING", "ND!"}};
  for (const auto& [said, expected] :
       {std::pair("a EN ENDING b", "a EN "), std::pair("ENDI", "ENDI"),
        std::pair("EEND! ENDING", "EE"), std::pair("é\xC3", "é\uFFFD"), std::pair("", "")})
    for (size_t step = 1; step < 5; ++step) {
      std::vector<int32_t> tokens;
      for (const char byte : std::string(said))
        for (int32_t id = 0; id < byte_tokenizer().vocab_size(); ++id)
          if (byte_tokenizer().token_bytes(id) == std::string(1, byte)) {
            tokens.push_back(id);
            break;
          }
      EXPECT_EQ(text_in_steps(rule, tokens, step, FinishReason::kLength), expected) << said;
    }
}

TEST(ChoiceTextTest, StopTokenIsNoTextUnlessTheResponseGoesPastIt) {
  std::vector<int32_t> tokens = encode("hello");
  tokens.push_back(eot());
  TextRule rule{
      .tokenizer = byte_tokenizer(), .stop_tokens = {eot()}, .stop = {}, .skips_special = false};
  EXPECT_EQ(text_in_steps(rule, tokens, 2, FinishReason::kStop), "hello");
  EXPECT_EQ(text_in_steps(rule, tokens, 2, FinishReason::kLength), "hello<|eot_id|>");
  rule.skips_special = true;
  EXPECT_EQ(text_in_steps(rule, tokens, 2, FinishReason::kLength), "hello");
}

AnswerContext context_of(chat_template::ToolCallFormat format) {
  return {.id = "chatcmpl-1",
          .created = 5,
          .model = "m",
          .tokenizer = byte_tokenizer(),
          .eos_tokens = {eot()},
          .tool_call_format = format};
}

GenerationRequest chat_request() {
  GenerationRequest request;
  request.is_chat = true;
  request.prompts = {{1, 2, 3}};
  request.sampling = std::make_shared<const rollout::SamplingOptions>();
  request.has_tools = true;
  return request;
}

TokenDelta delta_of_tokens(std::vector<int32_t> tokens, std::optional<FinishReason> finish) {
  const size_t count = tokens.size();
  return {.choice = 0,
          .tokens = std::move(tokens),
          .logprobs = std::vector<float>(count, -0.5f),
          .top_logprobs = {},
          .finish = finish,
          .cached_tokens = finish ? 16 : 0};
}

Json whole_answer(const std::string& text, chat_template::ToolCallFormat format) {
  const GenerationRequest request = chat_request();
  AnswerWriter writer(request, context_of(format), /*weight_version=*/2);
  std::vector<int32_t> tokens = encode(text);
  tokens.push_back(eot());
  EXPECT_EQ(writer.add(delta_of_tokens(tokens, FinishReason::kStop)), "");
  return Json::parse(writer.answer());
}

// The message that a stream's events make, token by token.
Json streamed_message(const std::string& text, chat_template::ToolCallFormat format,
                      Json* finish_reason) {
  GenerationRequest request = chat_request();
  request.streams = true;
  AnswerWriter writer(request, context_of(format), /*weight_version=*/2);
  std::vector<int32_t> tokens = encode(text);
  tokens.push_back(eot());
  std::string events;
  for (size_t i = 0; i < tokens.size(); ++i)
    events += writer.add(delta_of_tokens(
        {tokens[i]}, i + 1 < tokens.size() ? std::nullopt : std::optional(FinishReason::kStop)));
  Json message = {{"content", ""}, {"tool_calls", Json::array()}};
  for (size_t begin = 0; begin < events.size();) {
    const size_t end = events.find("\n\n", begin);
    const Json event = Json::parse(events.substr(begin + 6, end - begin - 6));
    const Json& choice = event["choices"][0];
    message["content"] =
        message["content"].get<std::string>() + choice["delta"].value("content", "");
    for (Json call : choice["delta"].value("tool_calls", Json::array())) {
      EXPECT_EQ(call["index"], message["tool_calls"].size());
      call.erase("index");
      message["tool_calls"].push_back(call);
    }
    *finish_reason = choice["finish_reason"];
    begin = end + 2;
  }
  return message;
}

TEST(AnswerWriterTest, ToolCallsAreTheSameWholeAndStreamed) {
  using chat_template::ToolCallFormat;
  struct Case {
    ToolCallFormat format;
    std::string text, content;
    size_t calls;
  };
  const Case cases[] = {
      {ToolCallFormat::kHermes,
       "I add.<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>"
       "<tool_call>{\"name\": \"sub\", \"arguments\": {}}</tool_call>",
       "I add.", 2},
      {ToolCallFormat::kHermes, "1 <tool_ 2", "1 <tool_ 2", 0},
      {ToolCallFormat::kHermes, "x<tool_call>{broken", "x<tool_call>{broken", 0},
      {ToolCallFormat::kLlama3, "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "", 1},
      {ToolCallFormat::kJson, "[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]", "", 1},
      {ToolCallFormat::kJson, "{\"no\": \"call\"}", "{\"no\": \"call\"}", 0}};
  for (const Case& one : cases) {
    const Json whole = whole_answer(one.text, one.format)["choices"][0];
    Json finish_reason;
    const Json streamed = streamed_message(one.text, one.format, &finish_reason);
    EXPECT_EQ(streamed["content"], one.content);
    EXPECT_EQ(streamed["tool_calls"].size(), one.calls) << one.text;
    EXPECT_EQ(finish_reason, one.calls > 0 ? "tool_calls" : "stop") << one.text;
    EXPECT_EQ(whole["finish_reason"], finish_reason);
    const Json& message = whole["message"];
    EXPECT_EQ(message.value("tool_calls", Json::array()), streamed["tool_calls"]);
    EXPECT_EQ(message["content"],
              one.content.empty() && one.calls > 0 ? Json() : Json(one.content));
  }
  const Json call = whole_answer(cases[0].text,
                                 ToolCallFormat::kHermes)["choices"][0]["message"]["tool_calls"][0];
  EXPECT_EQ(call["function"]["arguments"], "{\"a\":1}");
  EXPECT_EQ(call["id"], "call_chatcmpl-1_0_0");
}

TEST(AnswerWriterTest, CompletionHasLogprobsOffsetsAndVersion) {
  GenerationRequest request;
  request.prompts = {{7}, {8, 9}};
  request.sampling = std::make_shared<const rollout::SamplingOptions>();
  request.wants_logprobs = request.returns_token_ids = true;
  request.top_logprobs = 1;
  AnswerWriter writer(request, context_of(chat_template::ToolCallFormat::kJson), 3);
  const std::vector<int32_t> tokens = encode("aé");
  TokenDelta delta = delta_of_tokens(tokens, FinishReason::kLength);
  delta.logprobs.front() = -0.1f;
  delta.top_logprobs.assign(tokens.size(), {{eot(), -0.25f}});
  writer.add(delta);
  EXPECT_FALSE(writer.is_finished());
  delta.choice = 1;
  writer.add(delta);
  ASSERT_TRUE(writer.is_finished());
  const Json answer = Json::parse(writer.answer());
  EXPECT_EQ(answer["weight_version"], 3);
  EXPECT_EQ(answer["usage"], Json({{"prompt_tokens", 3},
                                   {"completion_tokens", 2 * tokens.size()},
                                   {"total_tokens", 3 + 2 * tokens.size()},
                                   {"prompt_tokens_details", {{"cached_tokens", 32}}}}));
  const Json& choice = answer["choices"][1];
  EXPECT_EQ(choice["text"], "aé");
  EXPECT_EQ(choice["prompt_token_ids"], Json({8, 9}));
  EXPECT_EQ(choice["token_ids"], Json(tokens));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"][0].dump(), "-0.1")
      << "shortest decimals of a float";
  EXPECT_EQ(choice["logprobs"]["text_offset"][0], 0);
  EXPECT_EQ(choice["logprobs"]["text_offset"][1], 1);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][0].size(), 2u) << "the sampled token is among them";
  EXPECT_EQ(choice["finish_reason"], "length");
}

}  // namespace
}  // namespace tlt::serve
