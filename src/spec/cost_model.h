// Cost model: the seconds of an engine step, before it is made.
//
// CostTable is measured when the engine starts: forward passes of the target, behind short texts
// and long ones, and proposals of the drafters. Long texts matter: a row of its own reads all keys
// and values of its sequence, and the rows of a tree read them together. StepCosts begins there and
// learns from the steps how far it is off, in logarithms, given the rows a step had and the texts
// before them: all arms together, which is the machine's pace at the moment, and beside it each arm
// at each batch size. What is seen at one batch size counts at similar ones, and at any that has
// seen nothing. An arm of which nothing is known, or nothing any more, is taken to be as far off as
// the others (sampling, for one, is not measured).
//
// A surprise is divided between pace and arm by what is in doubt of each, as a Kalman filter does
// that leaves out how their errors go together. So a spell in which the machine is busy makes no
// arm look slow. A step that took far longer than expected counts as one that took somewhat longer,
// and puts the pace in doubt: if the next one is as slow, that is the pace. But where the arm is
// new at such batch sizes, the surprise is the arm's.
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

#include "spec/cell_means.h"
#include "spec/chooser.h"

namespace tlt::spec {

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
  Strategy strategy;
  int64_t batch = 1;
  double seconds = 0;
};

// Straight lines between points; flat before the first, on along the last line behind the last.
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
  // Of a proposal for so many sequences, by the table; 0 when it was not measured.
  double draft_seconds(size_t arm, double sequences) const {
    return drafts_[arm].empty() ? 0 : drafts_[arm].at(sequences);
  }

  // Of a step, by the table alone.
  double table_seconds(size_t arm, const Load& load, double rows) const;

  void record(size_t arm, const Load& load, double rows, double seconds);

  // What is known of the arm is old: this share of it counts beside the steps to come.
  void doubt(size_t arm, double kept_share);

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);

 private:
  double table_weight() const;
  CellMeans::Differing differing() const;
  Estimate offset(size_t arm) const;
  // What arms are off by; into offsets_ and common_.
  void find_offsets(int64_t batch);

  const std::vector<Arm> arms_;
  const CostTable table_;
  std::vector<Curve> drafts_;  // [arm]
  CellMeans cells_;            // of log (seconds / table), the pace aside
  double pace_ = 0;            // of all arms: log (seconds / table)
  double pace_variance_ = 1;   // of its error
  double spread_ = 0.1;        // mean error of a step's log seconds
  Estimate common_;            // what all arms are off by, at the last prediction's batch size
  int64_t steps_ = 0;

  // Scratch.
  std::vector<Estimate> offsets_;        // [arm]
  std::vector<Prediction> predictions_;  // [arm]
};

}  // namespace tlt::spec
