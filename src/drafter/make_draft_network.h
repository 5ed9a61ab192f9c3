// Makes the draft model of an EAGLE drafter: loads one, or makes a new one.
//
//   const DraftNetworkPlan plan = {.algorithm = "eagle3", .head_rows = 32000};
//   auto network = make_draft_network(plan, target);
//   if (misses_head_tokens(plan, *network)) choose_head_tokens(plan, ranked, *network);
//
// Not here   ranking tokens by frequency (drafter_training/token_ranking.h).
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "drafter/eagle/draft_network.h"
#include "model/policy_model.h"

namespace tlt::drafter {

struct DraftNetworkPlan {
  std::string folder = {};          // of the draft model to load; empty: make a new one
  std::string algorithm = "eagle";  // of a new one: eagle or eagle3
  bool from_target = false;         // eagle: first weights are those of the target's last layer
  int64_t head_rows = 0;            // eagle3: at most this many tokens have an LM head row; 0: all
  uint64_t seed = 0;                // of a new one's weights
};

// Throws InputError if the folder's draft model does not fit the target. REQUIRES: `target`
// outlives it.
std::unique_ptr<DraftNetwork> make_draft_network(const DraftNetworkPlan& plan,
                                                 const model::PolicyModel& target);

// True for a new draft model whose LM head has some of the tokens only: those with the lowest ids,
// until they are chosen.
bool misses_head_tokens(const DraftNetworkPlan& plan, const DraftNetwork& network);
// Gives the LM head the first of the ranked tokens and initializes all weights again. REQUIRES:
// misses_head_tokens().
void choose_head_tokens(const DraftNetworkPlan& plan, std::span<const int32_t> ranked,
                        DraftNetwork& network);

}  // namespace tlt::drafter
