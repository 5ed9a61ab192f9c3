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

#include <memory>
#include <optional>
#include <string>
#include <utility>
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
  std::vector<std::pair<double, double>> points;  // by rising x
  double at(double x) const;                      // REQUIRES: not empty
};

// Reads a curve at one place after another: the search begins at the one before.
//
// Borrows  the curve.
class CurveReader {
 public:
  explicit CurveReader(const Curve& curve) : points_(&curve.points) {}
  double at(double x);  // Curve::at()

 private:
  const std::vector<std::pair<double, double>>* points_;
  size_t right_ = 1;  // the point after the last place
};

class CostTable {
 public:
  // InputError when there is no forward pass or a time is not positive.
  CostTable(const std::vector<ForwardCost>& forwards, const std::vector<DraftCost>& drafts);

  // What a longer context adds is linear in it, also beyond the longest. Between measured batch
  // sizes, linear between their passes of equally many rows.
  double target_seconds(double rows, double batch, double context = 0) const;

  // The same for many numbers of rows of one batch and context.
  class Passes;
  Passes passes(double batch, double context) const;

  // The ridge: the number of token rows whose arithmetic takes as long as reading the weights. A
  // pass of one row is taken for the reading, a row's share of the largest pass for its arithmetic.
  double ridge() const;

  // Seconds of a proposal by batch size; empty for "off" and for kinds that were not measured. A
  // strategy that was not measured costs as much a level as the nearest in width and depth.
  Curve draft_curve(const Arm& arm) const;

 private:
  using ByBatch = std::vector<std::pair<double, Curve>>;  // curves by rows, by rising batch
  struct Measured {
    ByBatch shortest = {};  // after the shortest context
    // Seconds that a context adds, by rising context; none after the shortest.
    std::vector<std::pair<double, ByBatch>> added = {};
    std::vector<DraftCost> drafts = {};
  };
  // The curves of the batches around a batch size.
  struct Around {
    CurveReader right;
    std::optional<CurveReader> left = {};  // none: `right` alone
    double share = 0, right_batch = 0;
    double seconds(double rows);
  };
  static Around around(const ByBatch& costs, double batch);

  std::shared_ptr<const Measured> measured_;  // by all copies: every tuner has one
};

// Borrows  the table.
class CostTable::Passes {
 public:
  double seconds(double rows);

 private:
  friend class CostTable;
  explicit Passes(const Around& shortest) : shortest_(shortest) {}

  Around shortest_;
  std::optional<Around> before_, after_;  // what the contexts around this one add
  double share_ = 0;                      // of the way from `before_`
};

}  // namespace tlt::speculation
