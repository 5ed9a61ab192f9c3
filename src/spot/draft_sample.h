// DraftSample: one sequence for a drafter to learn from: its tokens and the target's hidden states
// at them.
//
// Of a state the last D columns are the final ones, after the target's last norm. Those before are
// what an EAGLE-3 drafter is shown; an EAGLE-1/2 drafter is shown the final ones, and there are no
// others.
//
// What is learned (EAGLE): the pair (h_t, x_{t+1}) gives h_{t+1}. So n tokens are n - 1 pairs,
// and row t of the drafter's output is compared with state t + 1; the last state is only a target.
//
//   tokens   x_0  x_1  x_2  x_3        response_begin = 2
//   states   h_0  h_1  h_2  h_3
//   pairs    (h_0,x_1)->h_1  (h_1,x_2)->h_2  (h_2,x_3)->h_3
//
// h_1 says what x_2 will be, the response's first token: with LossPositions::kResponse the first
// pair that counts is (h_0, x_1).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/check.h"
#include "model/draft_network.h"

namespace tlt::spot {

enum class LossPositions { kResponse, kAll };

struct DraftSample {
  std::vector<int32_t> tokens;  // [n], n >= 2; may begin in the middle of a sequence
  int32_t response_begin = 0;   // index of the response's first token; may be 0
  uint32_t id = 0;              // the place of its random numbers
  // The states [n, D or S + D] in the target's compute type, on the CPU: called when their turn
  // comes, so that a batch never lies in memory as a whole.
  std::function<at::Tensor()> states;
  int32_t padding = 0;  // last pairs that only fill: packing needs none, a benchmark compares it

  int64_t pairs() const { return static_cast<int64_t>(tokens.size()) - 1; }
  // Behind the last pair that counts.
  int64_t end_pair() const { return pairs() - padding; }
  // Of the pairs that count; they go on to end_pair().
  int64_t first_pair(LossPositions positions) const {
    if (positions == LossPositions::kAll) return 0;
    return std::min<int64_t>(end_pair(), std::max(0, response_begin - 2));
  }
  int64_t counted_pairs(LossPositions positions) const {
    return end_pair() - first_pair(positions);
  }
};

// Of a sample's states: the final ones [n, D], and what `network` is shown [n, S].
inline at::Tensor final_part(const at::Tensor& states, const model::DraftNetwork& network) {
  const int64_t size = network.config().hidden;
  return states.narrow(1, states.size(1) - size, size);
}
inline at::Tensor shown_part(const at::Tensor& states, const model::DraftNetwork& network) {
  if (network.shown_layers().empty()) return final_part(states, network);
  const int64_t columns = network.shown_columns();
  TLT_CHECK(states.size(1) == columns + network.config().hidden, "states ", states.sizes(),
            " for a drafter that is shown ", columns, " columns");
  return states.narrow(1, 0, columns);
}

// What an engine must offer for such samples (HiddenTap::layers()): of EAGLE-3 what it is shown and
// the final states.
inline std::vector<int64_t> layers_to_record(const model::DraftNetwork& network) {
  std::vector<int64_t> layers = network.shown_layers();
  if (!layers.empty()) layers.push_back(network.target().config().layers);
  return layers;
}

// A sample with its states in memory.
inline DraftSample make_sample(std::vector<int32_t> tokens, const at::Tensor& states,
                               int32_t response_begin, uint32_t id) {
  return {std::move(tokens), response_begin, id, [states] { return states; }};
}

}  // namespace tlt::spot
