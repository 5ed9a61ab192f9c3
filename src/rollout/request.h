// Group and Response: what goes into the engine and what comes out.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "rollout/sampling_options.h"

namespace tlt::rollout {

// One prompt and how many responses are wanted. Token i of a response is chosen with the number
// uniform(seed, {step, prompt, sample, i}) and with nothing else that varies. step and prompt are
// rl_step and prompt_id, or the two halves of random_key.
struct Group {
  uint32_t prompt_id = 0;
  uint32_t rl_step = 0;
  std::vector<int32_t> tokens;  // the prompt
  int64_t samples = 1;
  int64_t first_sample = 0;  // the samples are first_sample .. first_sample + samples - 1
  std::shared_ptr<const SamplingOptions> sampling = std::make_shared<const SamplingOptions>();
  uint64_t seed = 0;
  // Where it is given, prompt_id is a name within the engine only.
  std::optional<uint64_t> random_key = {};
};

enum class FinishReason {
  kStop,       // a stop token or a stop text
  kLength,     // max_new_tokens, or the model has no more positions
  kCancelled,  // cancel(); the tokens so far
};

// The word of `finish_reason` in files and in the server's answers.
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

struct Response {
  uint32_t prompt_id = 0;
  uint32_t rl_step = 0;
  uint32_t sample = 0;
  std::vector<int32_t> tokens;  // with the stop token, and all tokens up to the end of a stop text
  std::vector<float> logprobs;  // of the temperature-scaled distribution
  std::vector<float> truncated_logprobs;  // of the truncated one; empty when nothing truncates
  FinishReason finish = FinishReason::kLength;
  // Forward passes of the model that gave tokens to this response; recomputing after a preemption
  // does not count, so it is tokens.size() without speculation and the same whatever ran beside it.
  int64_t target_forwards = 0;
};

}  // namespace tlt::rollout
