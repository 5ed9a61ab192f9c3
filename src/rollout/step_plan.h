// StepPlan: the forward pass of one engine step, and what its rows are for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "rollout/sequence.h"

namespace tlt::rollout {

// A started sample's own copy of its prompt's last page; made before the forward pass.
struct PageCopy {
  ops::PageId from = 0;
  ops::PageId to = 0;
};

// Whose the rows of a segment are.
struct Work {
  GroupState* group = nullptr;
  Sequence* sequence = nullptr;  // nullptr: rows of the group's prompt
  int32_t repeated_rows = 0;     // leading rows that had been computed before a preemption
  std::span<const int32_t> kept_path = {};  // of a tree: rows that became committed tokens (commit)
};

// Tokens to be chosen: one from the logits of a row (a prompt's last row gives the first token of
// every sample), or those along a path of the sequence's draft tree, whose rows begin here.
struct Draw {
  int32_t row = 0;
  Sequence* sequence = nullptr;
  bool is_tree = false;
};

// What a draw gave.
struct Drawn {
  std::span<const ops::Sampled> tokens;
  // Of a tree: the row, counted from the root's, that each token was chosen from. Its keys and
  // values are those of the token before.
  std::span<const int32_t> path;
};

struct StepPlan {
  std::vector<PageCopy> copies;
  ops::Batch batch;
  std::vector<Work> work;  // one for each segment of the batch
  std::vector<Draw> draws;

  bool empty() const { return batch.segments.empty(); }
  // More than decoding: rows of prompts, or such as were computed before a preemption.
  bool has_prompt_rows() const {
    return std::ranges::any_of(batch.segments,
                               [](const ops::Segment& segment) {
                                 return !segment.is_tree() && segment.rows > 1;
                               }) ||
           std::ranges::any_of(work, [](const Work& one) { return one.sequence == nullptr; });
  }
  void clear() {
    copies.clear();
    batch.clear();
    work.clear();
    draws.clear();
  }
};

}  // namespace tlt::rollout
