// CellMeans: what arms give at batch sizes: means by arm and batch cell. What is seen at one batch
// size counts at similar ones too, the less the farther away.
//
// Threading  engine thread only; no locks; no allocation.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "drafter/calibration.h"
#include "speculation/tuning_policy.h"

namespace tlt::speculation {

class CellMeans {
 public:
  // No cell's weight becomes more than `most_weight`.
  CellMeans(size_t arms, double most_weight) : cells_(arms), most_weight_(most_weight) {}

  void add(size_t arm, int64_t batch, double number, double weight);
  // Of the cells around the batch size; weight 0: nothing is known.
  drafter::Estimate at(size_t arm, int64_t batch) const;
  // The same where cells differ: each other cell counts at most this much, and the less the farther
  // its mean is, in deviations, from this cell's.
  struct Differing {
    double most_weight = 0, deviation = 0;
  };
  drafter::Estimate at(size_t arm, int64_t batch, const Differing& differing) const;
  // Of what was seen in the cell itself.
  double own_weight(size_t arm, int64_t batch) const {
    return cells_[arm][batch_cell(batch)].weight;
  }
  // Cells of at most this weight stay as they are.
  void forget(double kept_share, double kept_weight);
  void forget(size_t arm, double kept_share, double kept_weight);

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);

 private:
  struct Both {
    drafter::Estimate own, kin;
  };
  Both find(size_t arm, int64_t batch, double most_weight) const;

  std::vector<std::array<drafter::Estimate, kBatchCells>> cells_;  // [arm]
  const double most_weight_;
};

}  // namespace tlt::speculation
