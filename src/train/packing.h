// Packing: plans which sequences go through the model together, and on which worker.
//
// A pack holds whole sequences, or prefix groups of them (prefix_groups.h), without padding, up to a
// token budget. The plan is a pure function of the lengths, so every worker makes the same one.
// Packs do not depend on the number of workers, so neither do the gradients.
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

// The number of packs is a multiple of kShares if each then has kSmallPack tokens: smaller packs
// would not use the processors fully.
inline constexpr int64_t kShares = 8;
inline constexpr int64_t kSmallPack = 1024;

// Longest first, each into the pack with the fewest tokens, so that packs have similar sizes. As
// few packs as the budget allows, rounded up to a multiple of eight if they stay large enough, so
// that two, four or eight workers have equal work. A sequence above the budget gets a pack of its
// own.
// REQUIRES: every length is at least 1.
std::vector<Pack> plan_packs(std::span<const int64_t> lengths, int64_t token_budget);

// The worker of each pack: the costliest pack left goes to the worker with the least cost so far
// (on a tie the lower rank). costs: of each sequence; loads: of each worker's other work, empty:
// there is none.
std::vector<int> assign_packs(std::span<const Pack> packs, std::span<const double> costs,
                              int workers, std::vector<double> loads = {});

// A forward pass alone, of a forward and a backward pass, which takes as long as two forward passes.
inline constexpr double kForwardShare = 1.0 / 3;

// Proportional, approximately, to the time that tokens first … end-1 of a sequence take.
double cost_of_tokens(int64_t first, int64_t end);

}  // namespace tlt::train
