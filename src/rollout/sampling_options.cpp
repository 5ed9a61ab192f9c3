// SPDX-License-Identifier: Apache-2.0
#include "rollout/sampling_options.h"

#include "base/check.h"

namespace tlt::rollout {

// The conditions are false for NaN.
void SamplingOptions::check() const {
  TLT_CHECK_INPUT(temperature >= 0 && temperature <= 1e4, "temperature is ", temperature,
                  "; give 0 (most likely token) or a positive number such as 1.0");
  TLT_CHECK_INPUT(top_k >= -1, "top_k is ", top_k, "; give -1 (all tokens) or a positive number");
  TLT_CHECK_INPUT(top_p > 0 && top_p <= 1, "top_p is ", top_p,
                  "; give a number above 0 and up to 1");
  TLT_CHECK_INPUT(min_p >= 0 && min_p <= 1, "min_p is ", min_p, "; give a number from 0 to 1");
  TLT_CHECK_INPUT(max_new_tokens >= 1 && max_new_tokens <= INT32_MAX, "max_new_tokens is ",
                  max_new_tokens, "; give a number from 1 to ", INT32_MAX);
  for (const std::string& text : stop)
    TLT_CHECK_INPUT(!text.empty(),
                    "a stop string is empty; leave it out or give at least one character");
  for (const int64_t token : stop_tokens)
    TLT_CHECK_INPUT(token >= 0 && token <= INT32_MAX, "stop_tokens has ", token,
                    "; give token ids from 0");
}

}  // namespace tlt::rollout
