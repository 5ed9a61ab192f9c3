// Cost model: the seconds of an engine step, before it is made.
//
// CostTable is measured when the engine starts: forward passes of the target, after short contexts
// and long ones, and proposals of the drafters. Context matters: a row of its own reads the whole
// KV cache of its sequence, and the rows of a tree read it together. StepCosts starts from the
// table and learns from the steps, in logarithms, how far it is off, given the rows of a step and
// their context: a global speed factor of the machine, and a bias of each arm at each batch size.
// Observations at one batch size count at similar ones, and at any that has none. An arm without
// (recent) observations is assumed to be as far off as the others (sampling, for one, is not
// measured).
//
// The residual of a step is split between the speed factor and the arm's bias in proportion to
// their variances (scalar Kalman update, covariance ignored). So a transient slowdown of the
// machine makes no arm look slow. A step that took far longer than expected counts as one that took
// somewhat longer, and raises the variance of the speed factor: if the next step is as slow, the
// factor follows. But where the arm is new at such batch sizes, the residual is the arm's.
//
// Threading  engine thread only; no locks.
//
//   StepCosts costs(arms, CostTable(forwards, drafts));
//   costs.record(arm, {batch, context}, rows, seconds);
//   const double seconds =
//       std::exp(costs.predict({batch, context}, rows_of_arms)[arm].log_seconds);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "speculation/cell_means.h"
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
class Curve {
 public:
  void add(double x, double y);  // in place of what was at x
  bool empty() const { return points_.empty(); }
  double at(double x) const;  // REQUIRES: not empty

 private:
  std::vector<std::pair<double, double>> points_;  // by x
};

class CostTable {
 public:
  // InputError when there is no forward pass or a time is not positive.
  CostTable(const std::vector<ForwardCost>& forwards, const std::vector<DraftCost>& drafts);

  // Between measured contexts, and beyond, a straight line; before the first, as there. Between
  // measured batch sizes, between the passes of as many rows; of so few rows that the larger batch
  // has none, from passes without trees on.
  double target_seconds(double rows, double batch, double context = 0) const;

  // By batch size. A level of a strategy that was not measured costs what lies between those of the
  // next narrower and the next wider one of the kind, the nearest in depth; a kind that was not
  // measured, nothing. Empty for "off".
  Curve draft_curve(const Arm& arm) const;

 private:
  const DraftCost* find_draft(const Arm& arm, const std::function<bool(int64_t width)>& may) const;

  struct OfBatch {
    double batch = 0;
    Curve seconds;  // by rows
  };
  struct OfContext {
    double context = 0;
    std::vector<OfBatch> by_batch;  // in order
    double seconds(double rows, double batch) const;
  };
  std::vector<OfContext> by_context_;  // in order
  std::vector<DraftCost> drafts_;
};

class StepCosts {
 public:
  struct Prediction {
    double log_seconds = 0;
    double deviation = 0;  // standard, of log_seconds
  };

  StepCosts(const std::vector<Arm>& arms, CostTable table);

  // Of a step with each arm, `rows[arm]` rows for the target; valid until the next call.
  std::span<const Prediction> predict(const Load& load, std::span<const double> rows);
  // Seconds of a proposal for this many sequences, by the table; 0 when it was not measured.
  double draft_seconds(size_t arm, double sequences) const {
    return drafts_[arm].empty() ? 0 : drafts_[arm].at(sequences);
  }

  // Of a step, by the table alone.
  double table_seconds(size_t arm, const Load& load, double rows) const;

  void record(size_t arm, const Load& load, double rows, double seconds);

  // The arm's observations are old: this share of their weight is kept.
  void doubt(size_t arm, double kept_share);

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);

 private:
  double table_weight() const;
  CellMeans::Differing differing() const;
  drafter::Estimate offset(size_t arm) const;
  // What arms are off by; into offsets_ and common_.
  void find_offsets(int64_t batch);

  const std::vector<Arm> arms_;
  const CostTable table_;
  std::vector<Curve> drafts_;    // [arm]
  CellMeans cells_;              // of log (seconds / table) without the speed factor
  double log_speed_factor_ = 0;  // of all arms: log (seconds / table)
  double speed_variance_ = 1;    // of its error
  double spread_ = 0.1;          // mean error of a step's log seconds
  drafter::Estimate common_;     // what all arms are off by, at the last prediction's batch size
  int64_t steps_ = 0;

  // Scratch.
  std::vector<drafter::Estimate> offsets_;  // [arm]
  std::vector<Prediction> predictions_;     // [arm]
};

}  // namespace tlt::speculation
