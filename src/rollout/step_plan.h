// StepPlan: the forward pass of one engine step, and the meaning of its rows.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "ops/attention.h"
#include "rollout/sequence.h"

namespace tlt::rollout {

using ops::PageCopy;

// The owner of the rows of a batch's segment.
struct ScheduledSegment {
  GroupState* group = nullptr;
  Sequence* sequence = nullptr;  // nullptr: rows of the group's prompt
  int32_t repeated_rows = 0;     // leading rows that were already computed before a preemption
  std::span<const int32_t> kept_path = {};  // tree only, set by commit: rows of committed tokens
};

// A request to sample: one token from the logits of a row (a prompt's last row gives the first
// token of every sample), or the tokens along a path of the sequence's draft tree, whose rows begin
// at `row`.
struct SampleRequest {
  int32_t row = 0;
  Sequence* sequence = nullptr;
  size_t segment = 0;  // that the row is in
  bool is_tree = false;
};

// The result of a SampleRequest.
struct SampleResult {
  std::span<const ops::Sampled> tokens;
  // Tree only: the row, relative to the root's, that each token was sampled from. Its KV entry is
  // that of the token before.
  std::span<const int32_t> path;
  std::span<const std::vector<ops::Sampled>> top_logprobs =
      {};  // of each token; empty: none wanted
};

// Consecutive rows and positions that are computed for the first time.
struct NewRows {
  int32_t row = 0;
  int32_t position = 0;
  int32_t count = 0;
};

struct StepPlan {
  // Of a prompt's last page for a sample that starts; made before the forward pass.
  std::vector<PageCopy> copies;
  ops::Batch batch;
  std::vector<ScheduledSegment> segments;  // one per segment of the batch
  std::vector<SampleRequest> sample_requests;

  bool empty() const { return batch.segments.empty(); }
  // True when the step does more than decode: it has prompt rows or recomputed rows.
  bool has_prompt_rows() const {
    return std::ranges::any_of(batch.segments,
                               [](const ops::Segment& segment) {
                                 return !segment.is_tree() && segment.rows > 1;
                               }) ||
           std::ranges::any_of(segments,
                               [](const ScheduledSegment& one) { return one.sequence == nullptr; });
  }
  // REQUIRES: the segment is no tree.
  NewRows new_rows(size_t segment) const {
    const ops::Segment& all = batch.segments[segment];
    const int32_t repeated = segments[segment].repeated_rows;
    return {all.first_row + repeated, all.first_position + repeated, all.rows - repeated};
  }
  // Number of tokens that the response got. REQUIRES: the plan is committed.
  int64_t committed_tokens(const SampleRequest& request) const {
    return request.is_tree ? std::ssize(segments[request.segment].kept_path) : 1;
  }
  void clear() {
    copies.clear();
    batch.clear();
    segments.clear();
    sample_requests.clear();
  }
};

}  // namespace tlt::rollout
