// Packing: which sequences go through the model together, and on which worker.
//
// A pack holds whole sequences, or bundles of them (bundles.h), without padding, up to a budget of
// tokens. The plan is a pure function of the lengths, so every worker makes the same one; the packs
// do not depend on the number of workers, so neither do the gradients.
//
// Threading  pure functions.
//
//   const std::vector<Pack> packs = plan_packs(lengths, /*token_budget=*/4096);
//   const std::vector<int> owners = assign_packs(packs, costs, workers);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tlt::train {

using Pack = std::vector<int64_t>;  // indices of sequences, ascending

// Packs are planned in multiples of kShares where each gets kSmallPack tokens: fewer would not keep
// the processors busy.
inline constexpr int64_t kShares = 8;
inline constexpr int64_t kSmallPack = 1024;

// Longest first, each into the emptiest pack, so that packs are of even size: as few as the budget
// allows, but eight or a multiple where they are not too small for it, so that two, four or eight
// workers have the same to do. A sequence above the budget has a pack of its own.
// REQUIRES: every length is at least 1.
std::vector<Pack> plan_packs(std::span<const int64_t> lengths, int64_t token_budget);

// The worker of each pack: the costliest pack left goes to the worker with the least to do (equals:
// the lower one). costs: of each sequence.
std::vector<int> assign_packs(std::span<const Pack> packs, std::span<const double> costs,
                              int workers);

// About in proportion to the time that tokens first … end-1 of a sequence take.
double cost_of_tokens(int64_t first, int64_t end);

}  // namespace tlt::train
