// SPDX-License-Identifier: Apache-2.0
#include "serve/generation_request.h"

#include <gtest/gtest.h>

#include "serve/api_error.h"

namespace tlt::serve {
namespace {

class GenerationRequestTest : public ::testing::Test {
 protected:
  // The parameter that is refused; "" when the request is accepted.
  std::string refused(const std::string& body, bool is_chat = false) const {
    try {
      is_chat ? parser_.chat(body) : parser_.completion(body);
      return "";
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 400);
      return error.param.empty() ? "(none)" : error.param;
    }
  }

  const tokenizer::Tokenizer tokenizer_ =
      tokenizer::Tokenizer::load(std::string(TLT_SOURCE_DIR) + "/models/demo");
  const ServedModel model_ = {
      .name = "demo",
      .tokenizer = tokenizer_,
      .chat_template = chat_template::ChatTemplate::parse(
          "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}+{% endif %}"
          "{% if short %}-{% endif %}",
          "test", nlohmann::ordered_json::object()),
      .vocabulary = 120,
      .max_positions = 200,
      .max_cache_tokens = 160,
      .max_choices = 10};
  const RequestParser parser_{model_};
};

TEST_F(GenerationRequestTest, FieldsBecomeSamplingOptions) {
  const GenerationRequest request = parser_.completion(R"({"model": "demo", "prompt": "4,6:",
    "n": 2, "seed": 9, "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1,
    "stop": ["a"], "stop_token_ids": [5], "ignore_eos": true, "stream": true,
    "stream_options": {"include_usage": true}, "return_token_ids": true, "logprobs": 3,
    "user": "u"})");
  EXPECT_EQ(request.prompts, std::vector<std::vector<int32_t>>{tokenizer_.encode("4,6:")});
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.seed, 9u);
  EXPECT_EQ(request.top_logprobs, 3);
  EXPECT_TRUE(request.wants_logprobs && request.streams && request.includes_usage &&
              request.returns_token_ids && !request.is_chat);
  const rollout::SamplingOptions& sampling = *request.sampling;
  EXPECT_EQ(sampling.max_new_tokens, 7);
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.top_k, 4);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.stop, std::vector<std::string>{"a"});
  EXPECT_EQ(sampling.stop_tokens, std::vector<int64_t>{5});
  EXPECT_TRUE(sampling.ignore_eos);
}

TEST_F(GenerationRequestTest, DefaultsAreThoseOfGenerate) {
  const GenerationRequest request = parser_.completion(R"({"prompt": "4,6:"})");
  const rollout::SamplingOptions &sampling = *request.sampling, defaults;
  EXPECT_EQ(sampling.temperature, defaults.temperature);
  EXPECT_EQ(sampling.top_k, defaults.top_k);
  EXPECT_EQ(sampling.top_p, defaults.top_p);
  EXPECT_EQ(sampling.max_new_tokens, 16) << "as in OpenAI's API";
  EXPECT_NE(request.seed, parser_.completion(R"({"prompt": "4,6:"})").seed);
  const auto chat =
      parser_.chat(R"({"messages": [{"role": "user", "content": "4,6:"}], "top_k": 0})");
  EXPECT_EQ(chat.sampling->max_new_tokens, 160 - 16 - 4) << "what the KV cache holds";
  EXPECT_EQ(chat.sampling->top_k, -1);
}

TEST_F(GenerationRequestTest, ToolsAndVariablesReachTheTemplate) {
  const auto prompt_of = [&](const std::string& more) {
    return tokenizer_.decode(
        parser_.chat(R"({"messages": [{"role": "user", "content": "4"}])" + more + "}").prompts[0]);
  };
  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(prompt_of(""), "4");
  EXPECT_EQ(prompt_of(tools), "4+");
  EXPECT_EQ(prompt_of(tools + R"(, "tool_choice": "none")"), "4");
  EXPECT_EQ(prompt_of(R"(, "chat_template_kwargs": {"short": true})"), "4-");
}

TEST_F(GenerationRequestTest, MistakesNameTheirField) {
  EXPECT_EQ(refused(R"({})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt": ""})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt": []})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt": [1, "a"]})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt": ["4", {}]})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt": [120]})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt": [-1]})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt": [1e300]})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt": ["4","4","4","4","4","4","4","4","4","4","4"]})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt": ["4","4"], "n": 6})"), "n");
  EXPECT_EQ(refused(R"({"prompt": "4", "logprobs": 21})"), "logprobs");
  EXPECT_EQ(refused(R"({"prompt": "4", "stop": [1]})"), "stop");
  EXPECT_EQ(refused(R"({"prompt": "4", "stream_options": {}})"), "stream_options");
  EXPECT_EQ(refused(R"({"prompt": "4", "best_of": 2})"), "best_of");
  EXPECT_EQ(refused(R"({"prompt": "4", "logit_bias": {"1": 1}})"), "logit_bias");
  EXPECT_EQ(refused(R"({"prompt": "4", "top_p": 0})"), "(none)");
  EXPECT_EQ(refused(R"({"prompt": "4", "stop": [""]})"), "(none)");
  EXPECT_EQ(refused(R"({"messages": []})", true), "messages");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": "4"}], "tool_choice": {}})", true),
            "tool_choice");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": "4"}],
                        "response_format": {"type": "json_object"}})",
                    true),
            "response_format");
}

}  // namespace
}  // namespace tlt::serve
