// TargetStates: the hidden states of a forward pass of the target, for drafters and observers: the
// final states of its rows, and the input states of captured layers.
//
// Threading  a view of the pass's memory, valid until the next one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tlt::rollout {

// Layers whose input hidden states are captured; index L: the final hidden states. Empty: the final
// states only.
using Layers = std::vector<int64_t>;

// All layers of two lists: the longer one, of which the other must be a prefix; else InputError.
inline const Layers& merge_layers(const Layers& a, const Layers& b) {
  const Layers& longer = a.size() >= b.size() ? a : b;
  const Layers& other = &longer == &a ? b : a;
  TLT_CHECK_INPUT(std::equal(other.begin(), other.end(), longer.begin()),
                  "two drafters read the states of different target layers; use one of them");
  return longer;
}

class TargetStates {
 public:
  // hidden [T, D]: final. captured [T, C D]: the captured layers' inputs, next to each other.
  // NOLINTNEXTLINE(google-explicit-constructor): final states alone are states
  TargetStates(at::Tensor hidden, at::Tensor captured = {})
      : hidden_(std::move(hidden)), captured_(std::move(captured)) {}

  const at::Tensor& hidden() const { return hidden_; }
  const at::Tensor& captured() const { return captured_; }
  // [T, S]: the states of these layers.
  at::Tensor of_layers(const Layers& layers) const {
    if (layers.empty()) return hidden_;
    const int64_t columns = std::ssize(layers) * hidden_.size(1);
    TLT_CHECK(captured_.defined() && captured_.size(1) >= columns, "fewer than ", layers.size(),
              " layers were captured");
    return captured_.size(1) == columns ? captured_ : captured_.narrow(1, 0, columns);
  }
  TargetStates rows(int64_t first, int64_t count) const {
    return TargetStates(hidden_.narrow(0, first, count),
                        captured_.defined() ? captured_.narrow(0, first, count) : at::Tensor());
  }

 private:
  at::Tensor hidden_, captured_;
};

}  // namespace tlt::rollout
