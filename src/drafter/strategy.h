// Strategy: the size of a draft tree: "8_4_48" is depth 8, width 4, 48 tokens to verify.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace tlt::drafter {

struct Strategy {
  int64_t depth = 0;   // levels of the tree below the last committed token
  int64_t width = 0;   // children per expanded node, and expanded nodes per level
  int64_t verify = 0;  // token rows of the target's forward pass, the last committed token included

  // verify == 1: non-speculative decoding.
  bool is_off() const { return verify <= 1; }
  auto operator<=>(const Strategy&) const = default;  // NOLINT(modernize-use-nullptr)
};

inline constexpr Strategy kOff{0, 0, 1};

// Nodes that EAGLE-2's expansion scores: k + (depth - 1) k^2 for width k; `verify` - 1 of them can
// be chosen.
int64_t scored_nodes(const Strategy& strategy);

// "8_4_48", or "off". InputError says what is wrong and what is accepted: depth and width at least
// 1, verify at least 2 and at most scored_nodes() + 1.
Strategy parse_strategy(std::string_view text);
std::string to_string(const Strategy& strategy);

}  // namespace tlt::drafter
