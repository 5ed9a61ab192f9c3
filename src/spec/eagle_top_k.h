// The most probable next tokens of a row of logits: what a draft tree's node is expanded into.
//
// Threading  no state; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace tlt::spec {

// The tokens.size() largest of the logits, largest first (of equals the lowest id), and their
// probabilities under softmax(logits). All tokens are different, even when logits are not numbers.
// REQUIRES: 1 <= tokens.size() == probabilities.size() <= logits.size().
void top_k_softmax(std::span<const float> logits, std::span<int32_t> tokens,
                   std::span<float> probabilities);

}  // namespace tlt::spec
