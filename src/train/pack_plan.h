// PackPlan: the packs of an optimizer step: which samples go through the model together.
//
// Samples of one group (TrainSample::group) are packed together and with no others, so the packs of
// a group are the same whether it is planned alone or in its batch: they can be computed before the
// other groups are known. The samples that the loss learns from are packed apart from those that
// are only measured, which need no forward pass if the rollouts have measured them.
//
// Borrows    the samples.
// Threading  engine thread only.
//
//   const PackPlan plan(samples, loss, /*max_tokens=*/4096);
//   for (size_t i : plan.share(is_done, comm)) { … plan.load(plan.packs()[i], tape) … }
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cluster/comm.h"
#include "model/tape.h"
#include "train/head_loss.h"
#include "train/packing.h"
#include "train/prefix_groups.h"
#include "train/sample.h"

namespace tlt::train {

struct PlannedPack {
  int64_t group = 0;
  size_t index = 0;    // among the group's packs
  bool learns = true;  // else it is measured, for the metrics
  // A forward pass would compute what its samples have already: rollout_logprobs and
  // rollout_entropies.
  bool is_known = false;
  double cost = 0;  // cost_of_tokens; 0: is_known
  std::vector<PrefixGroup> members = {};

  std::pair<int64_t, size_t> key() const { return {group, index}; }
};

// The samples by TrainSample::group. Throws Error if those of a group are not neighbours.
std::vector<std::span<const TrainSample>> groups_of(std::span<const TrainSample> samples);

class PackPlan {
 public:
  // `learns`: of each sample. `is_on_policy`: the model has the weights of the rollouts.
  PackPlan(std::span<const TrainSample> samples, const std::vector<bool>& learns,
           int64_t max_tokens, bool is_on_policy = false);

  // Group by group; of a group, those that are learned from come first.
  const std::vector<PlannedPack>& packs() const { return packs_; }

  // The packs that this worker computes, of those that are not done: indices, ascending. loads: the
  // cost of each worker's other work; empty: there is none.
  std::vector<size_t> share(const std::vector<bool>& is_done, const cluster::Comm& comm,
                            std::vector<double> loads = {}) const;

  // Puts the pack's samples on the tape, which is cleared before.
  std::vector<PackedSample> load(const PlannedPack& pack, model::Tape& tape) const;

 private:
  bool are_known(const PlannedPack& pack) const;
  void plan(int64_t group, const std::vector<int64_t>& members, bool learns, int64_t max_tokens);

  const std::span<const TrainSample> samples_;
  const bool is_on_policy_;
  std::vector<PlannedPack> packs_;
};

}  // namespace tlt::train
