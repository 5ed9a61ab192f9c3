// SPDX-License-Identifier: Apache-2.0
#include "serve/logprobs.h"

#include <string>

#include "base/utf8.h"
#include "cli/rows.h"

namespace tlt::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const tokenizer::Tokenizer& tokenizer, int32_t token) {
  std::string text;
  append_lossy(text, tokenizer.token_bytes(token), /*is_last=*/true);
  return text;
}

Json number(float value) { return cli::numbers(std::span(&value, 1)).front(); }

Json scored_token(const tokenizer::Tokenizer& tokenizer, int32_t token, float logprob) {
  Json bytes = Json::array();
  for (const char byte : tokenizer.token_bytes(token))
    bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", text_of(tokenizer, token)},
          {"logprob", number(logprob)},
          {"bytes", std::move(bytes)}};
}

int64_t characters(const std::string& text) {
  int64_t count = 0;
  for (const char byte : text) count += (byte & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

}  // namespace

Json chat_logprobs(const tokenizer::Tokenizer& tokenizer, const ScoredTokens& scored) {
  Json content = Json::array();
  for (size_t i = 0; i < scored.tokens.size(); ++i) {
    Json item = scored_token(tokenizer, scored.tokens[i], scored.logprobs[i]);
    item["top_logprobs"] = Json::array();
    if (!scored.top_logprobs.empty())
      for (const ops::Sampled& top : scored.top_logprobs[i])
        item["top_logprobs"].push_back(scored_token(tokenizer, top.token, top.logprob));
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}};
}

Json prompt_logprobs(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> tokens,
                     std::span<const float> logprobs) {
  Json list = Json::array({nullptr});
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const int32_t token = tokens[i + 1];
    list.push_back(
        {{std::to_string(token),
          {{"logprob", number(logprobs[i])}, {"decoded_token", text_of(tokenizer, token)}}}});
  }
  return list;
}

// The sampled token is always among the top ones, as in OpenAI's and vLLM's answers.
Json completion_logprobs(const tokenizer::Tokenizer& tokenizer, const ScoredTokens& scored,
                         int64_t& offset) {
  Json tokens = Json::array(), tops = Json::array(), offsets = Json::array();
  for (size_t i = 0; i < scored.tokens.size(); ++i) {
    const std::string text = text_of(tokenizer, scored.tokens[i]);
    offsets.push_back(offset);
    offset += characters(text);
    if (!scored.top_logprobs.empty()) {
      Json top = Json::object();
      for (const ops::Sampled& one : scored.top_logprobs[i])
        top[text_of(tokenizer, one.token)] = number(one.logprob);
      top[text] = number(scored.logprobs[i]);
      tops.push_back(std::move(top));
    }
    tokens.push_back(text);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", cli::numbers(scored.logprobs)},
          {"top_logprobs", scored.top_logprobs.empty() ? Json() : std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace tlt::serve
