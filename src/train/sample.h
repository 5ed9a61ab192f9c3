// TrainSample: one training sequence with the values recorded when it was generated.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace tlt::train {

struct TrainSample {
  std::vector<int32_t> tokens;  // prompt, then response
  int32_t response_begin = 0;   // tokens of the prompt; at least 1
  // One value for each response token.
  std::vector<float> rollout_logprobs;    // when it was sampled; empty: supervised
  std::vector<float> rollout_entropies;   // the same; empty: not known
  std::vector<float> reference_logprobs;  // of the reference policy; empty: no KL loss
  std::vector<float> advantages;          // empty: supervised
  std::vector<float> values, returns;     // of the critic, and what it learns; empty: no critic
  std::vector<float> weights;             // of the loss; empty: 1 for every token
  double reference_sum = 0;               // of the reference's logprobs; in preference pairs
  int64_t group = 0;                      // neighbours of one group are packed together
  int64_t id = 0;                         // for messages

  int64_t response_size() const { return static_cast<int64_t>(tokens.size()) - response_begin; }
  double weight(int64_t position) const {
    return weights.empty() ? 1.0 : weights[static_cast<size_t>(position)];
  }
};

}  // namespace tlt::train
