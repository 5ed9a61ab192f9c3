// The logprobs of an answer, in the two forms of OpenAI's API.
//
// They are of the temperature-scaled distribution, as in `tlt generate`: the trainer's, bit for
// bit.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "ops/sampling.h"
#include "tokenizer/tokenizer.h"

namespace tlt::serve {

// Tokens of a response with what was recorded for each; top_logprobs empty: not requested.
struct ScoredTokens {
  std::span<const int32_t> tokens;
  std::span<const float> logprobs;
  std::span<const std::vector<ops::Sampled>> top_logprobs;
};

// {"content": [{"token", "logprob", "bytes", "top_logprobs": […]}, …]}, for /v1/chat/completions.
nlohmann::ordered_json chat_logprobs(const tokenizer::Tokenizer& tokenizer,
                                     const ScoredTokens& scored);

// [null, {"<id>": {"logprob", "decoded_token"}}, …]: vLLM's prompt_logprobs. `logprobs`: of all
// tokens but the first.
nlohmann::ordered_json prompt_logprobs(const tokenizer::Tokenizer& tokenizer,
                                       std::span<const int32_t> tokens,
                                       std::span<const float> logprobs);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, for /v1/completions. `offset`:
// number of characters of the tokens before these; advances by those of these.
nlohmann::ordered_json completion_logprobs(const tokenizer::Tokenizer& tokenizer,
                                           const ScoredTokens& scored, int64_t& offset);

}  // namespace tlt::serve
