// DraftSample: one training sequence of a draft model: tokens and the target's hidden states at
// them.
//
// The last D columns of a state are final hidden states, after the target's last norm. For an
// EAGLE-3 draft model the auxiliary hidden states precede them; an EAGLE-1/2 draft model reads the
// final ones, and there are no others.
//
// Training pairs (EAGLE): the pair (h_t, x_{t+1}) gives h_{t+1}. So n tokens are n - 1 pairs,
// and row t of the draft model's output is compared with state t + 1; the last state is only a
// target.
//
//   tokens   x_0  x_1  x_2  x_3        response_begin = 2
//   states   h_0  h_1  h_2  h_3
//   pairs    (h_0,x_1)->h_1  (h_1,x_2)->h_2  (h_2,x_3)->h_3
//
// h_1 predicts x_2, the response's first token: with LossPositions::kResponse the first pair that
// counts is (h_0, x_1).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/check.h"
#include "drafter/eagle/draft_network.h"

namespace tlt::drafter_training {

enum class LossPositions { kResponse, kAll };

struct DraftSample {
  std::vector<int32_t> tokens;  // [n], n >= 2; may begin in the middle of a sequence
  int32_t response_begin = 0;   // index of the response's first token; may be 0
  uint32_t id = 0;              // names it in messages
  // Returns the states [n, D or S + D] in the target's compute type, on the CPU. Called when they
  // are needed, so that a batch is never in memory as a whole.
  std::function<at::Tensor()> states;
  int32_t padding = 0;  // last pairs without use; only a benchmark of packing sets it

  int64_t pairs() const { return static_cast<int64_t>(tokens.size()) - 1; }
  // The end of the pairs that count.
  int64_t end_pair() const { return pairs() - padding; }
  // The first pair that counts.
  int64_t first_pair(LossPositions positions) const {
    if (positions == LossPositions::kAll) return 0;
    return std::min<int64_t>(end_pair(), std::max(0, response_begin - 2));
  }
  int64_t counted_pairs(LossPositions positions) const {
    return end_pair() - first_pair(positions);
  }
};

// The columns of a sample's states that are final [n, D], and those that `network` reads [n, S].
inline at::Tensor final_part(const at::Tensor& states, const drafter::DraftNetwork& network) {
  const int64_t size = network.config().hidden;
  return states.narrow(1, states.size(1) - size, size);
}
inline at::Tensor feature_part(const at::Tensor& states, const drafter::DraftNetwork& network) {
  if (network.auxiliary_layers().empty()) return final_part(states, network);
  const int64_t columns = network.feature_columns();
  TLT_CHECK(states.size(1) == columns + network.config().hidden, "states ", states.sizes(),
            " for a draft model that reads ", columns, " columns");
  return states.narrow(1, 0, columns);
}

// The layers whose states an engine must offer for such samples (HiddenStateObserver::layers()):
// for EAGLE-3 the auxiliary and the final ones.
inline std::vector<int64_t> layers_to_record(const drafter::DraftNetwork& network) {
  std::vector<int64_t> layers = network.auxiliary_layers();
  if (!layers.empty()) layers.push_back(network.target().config().layers);
  return layers;
}

// The columns of their states.
inline int64_t recorded_columns(const drafter::DraftNetwork& network) {
  const auto layers = static_cast<int64_t>(layers_to_record(network).size());
  return std::max<int64_t>(1, layers) * network.target().config().hidden;
}

// Makes a sample with its states in memory.
inline DraftSample make_sample(std::vector<int32_t> tokens, const at::Tensor& states,
                               int32_t response_begin, uint32_t id) {
  return {std::move(tokens), response_begin, id, [states] { return states; }};
}

}  // namespace tlt::drafter_training
