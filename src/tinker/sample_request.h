// SampleRequest: the body of an asample request of the Tinker API.
//
// Threading  any thread; no shared state.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rollout/request.h"
#include "tinker/train_request.h"

namespace tlt::tinker {

struct SampleRequest {
  std::string sampler;  // sampling_session_id
  int64_t seq_id = 0;
  rollout::Group group;  // its seed and random key: only if has_seed
  bool has_seed = false;
  bool wants_prompt_logprobs = false;
  int64_t prompt_logprobs_last_n = 0;  // 0: all
  int64_t topk_sample_logprobs = 0;

  // ApiError or InputError names the field and what is accepted. `max_samples`: of one request.
  static SampleRequest read(std::string_view body, const TokenLimits& limits, int64_t max_samples);
};

}  // namespace tlt::tinker
