// CostTable: the measured seconds of forward passes and proposals, by token rows, batch and
// context.
//
// Measured when the engine starts (rollout/cost_probe.h): forward passes of the target after short
// and long contexts, and proposals of the drafters. Context matters: a sequence's rows read its KV
// cache together, so further rows of a tree cost less than sequences, the more the longer it is.
//
// Threading  constant after construction.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "speculation/tuning_policy.h"

namespace tlt::speculation {

// A forward pass of the target: `rows` of `batch` sequences, `context` tokens before each.
struct ForwardCost {
  int64_t batch = 1;
  int64_t rows = 1;
  double seconds = 0;
  int64_t context = 0;
};

// A drafter's proposal of trees for `batch` sequences.
struct DraftCost {
  std::string kind;
  drafter::Strategy strategy;
  int64_t batch = 1;
  double seconds = 0;
};

// Piecewise linear between points; constant before the first, extrapolated after the last.
struct Curve {
  std::map<double, double> points;
  double at(double x) const;  // REQUIRES: not empty
};

class CostTable {
 public:
  // InputError when there is no forward pass or a time is not positive.
  CostTable(const std::vector<ForwardCost>& forwards, const std::vector<DraftCost>& drafts);

  // What a longer context adds is linear in it, also beyond the longest. Between measured batch
  // sizes, linear between their passes of equally many rows.
  double target_seconds(double rows, double batch, double context = 0) const;

  // The ridge: the number of token rows whose arithmetic takes as long as reading the weights. A
  // pass of one row is taken for the reading, a row's share of the largest pass for its arithmetic.
  double ridge() const;

  // Seconds of a proposal by batch size; empty for "off" and for kinds that were not measured. A
  // strategy that was not measured costs as much a level as the nearest in width and depth.
  Curve draft_curve(const Arm& arm) const;

 private:
  using ByBatch = std::map<double, Curve>;  // curves by rows
  static double seconds(const ByBatch& costs, double rows, double batch);

  ByBatch shortest_;                 // after the shortest context
  std::map<double, ByBatch> added_;  // seconds that a context adds; empty after the shortest
  std::vector<DraftCost> drafts_;
};

}  // namespace tlt::speculation
