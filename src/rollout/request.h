// Group and Response: the engine's input and output.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "rollout/sampling_options.h"

namespace tlt::rollout {

// A prompt and the number of responses to generate. Token i of a response is sampled with
// uniform(seed, {step, prompt, sample, i}) and depends on no other varying quantity. step and
// prompt are rl_step and prompt_id, or the two halves of random_key.
struct Group {
  uint32_t prompt_id = 0;
  uint32_t rl_step = 0;
  std::vector<int32_t> tokens;  // the prompt
  int64_t samples = 1;
  int64_t first_sample = 0;  // samples are first_sample .. first_sample + samples - 1
  std::shared_ptr<const SamplingOptions> sampling = std::make_shared<const SamplingOptions>();
  uint64_t seed = 0;
  // When set, prompt_id is an id within the engine only and does not affect sampling.
  std::optional<uint64_t> random_key = {};
  int64_t top_logprobs = 0;  // most likely tokens to record at each position of a response
  // Samples from this one on are decoded greedily, whatever `sampling` says.
  int64_t first_greedy_sample = std::numeric_limits<int64_t>::max();
};

enum class FinishReason {
  kStop,       // a stop token or a stop string
  kLength,     // max_new_tokens, or the model has no more positions
  kCancelled,  // cancel(); the tokens so far
};

// The value of `finish_reason` in files and in the server's answers.
inline const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      break;
  }
  return "cancelled";
}

// Tokens begin .. end - 1 of a response.
struct TokenSpan {
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const TokenSpan&) const = default;
};

struct Response {
  uint32_t prompt_id = 0;
  uint32_t rl_step = 0;
  uint32_t sample = 0;
  std::vector<int32_t> tokens;  // stop token included; up to the end of a stop string
  // Of the temperature-scaled distribution that each token was sampled from; entropies in nats.
  std::vector<float> logprobs, entropies;
  // Tokens that were not sampled but given between the turns of an episode (rl/episodes.h), in
  // order; their logprobs and entropies are 0. Empty: all tokens were sampled.
  std::vector<TokenSpan> observed = {};
  // For each token the most likely ones at its position, most likely first; empty: not requested.
  std::vector<std::vector<ops::Sampled>> top_logprobs = {};
  FinishReason finish = FinishReason::kLength;
  // Target forward passes that gave this response tokens. Recomputation after a preemption does not
  // count: without speculation it equals tokens.size(), whatever else was in the batch.
  int64_t target_forwards = 0;
  // Tokens that were not computed, from the prefix cache: of the prompt, and of a resumed response.
  int64_t cached_tokens = 0;

  // One logprob and entropy for each token.
  bool has_statistics() const {
    return logprobs.size() == tokens.size() && entropies.size() == tokens.size();
  }
  // Calls see(token, is_observed) for each token, by index.
  void visit_tokens(auto&& see) const {
    size_t span = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(tokens.size()); ++i) {
      while (span < observed.size() && observed[span].end <= i) ++span;
      see(static_cast<size_t>(i), span < observed.size() && observed[span].begin <= i);
    }
  }
  int64_t sampled_tokens() const {
    auto sampled = static_cast<int64_t>(tokens.size());
    for (const TokenSpan& span : observed) sampled -= span.end - span.begin;
    return sampled;
  }
};

}  // namespace tlt::rollout
