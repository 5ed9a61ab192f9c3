// Row budget: decides which nodes of a step's draft trees are worth a token row of the target's
// forward pass.
//
// A row costs seconds; a node gives a token with its probability of acceptance. The nodes of all
// sequences are taken in order of probability while the tokens they give exceed those that their
// seconds would give at the engine's mean speed. So a sequence with a predictable continuation gets
// many rows and another none.
//
// Not here   pruning the trees: DraftTree::keep_best, which keeps the same nodes.
// Threading  pure function; no allocation once the scratch memory is warm.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafter/calibration.h"
#include "speculation/cost_table.h"

namespace tlt::speculation {

struct RowRequest {
  std::span<const drafter::DraftTree* const> trees;  // at most one per sequence
  int64_t sequences = 0;                             // of the forward pass
  const drafter::Calibration& calibration;           // of the trees' probabilities
  const CostTable& costs;
  double tokens_per_second = 0;  // of the engine, on the cost table's machine
  double context = 0;            // mean context length before the trees
  int64_t max_rows = 0;          // roots included
};

// Scratch memory of split_rows(), kept by the caller from step to step: probability and tree.
using RowScratch = std::vector<uint64_t>;

// Fills keep[i] with the number of nodes that tree i should keep. REQUIRES: max_rows is at least
// `sequences`, and that at least the number of trees.
void split_rows(const RowRequest& request, std::span<int32_t> keep, RowScratch& nodes);

}  // namespace tlt::speculation
