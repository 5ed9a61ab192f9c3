// CellMeans: what arms give at batch sizes: means by arm and batch cell. What is seen at one batch
// size counts at similar ones too, the less the farther away.
//
// Threading  engine thread only; no locks; no allocation.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "spec/tuning_policy.h"

namespace tlt::spec {

// A mean with forgetting of older numbers; weight: the number of observations it is based on.
struct Estimate {
  double mean = 0;
  double weight = 0;

  void add(double number, double number_weight) {
    if (number_weight <= 0) return;
    weight += number_weight;
    mean += (number - mean) * number_weight / weight;
  }
};
void to_json(nlohmann::json& json, const Estimate& estimate);
void from_json(const nlohmann::json& json, Estimate& estimate);

class CellMeans {
 public:
  // No cell's weight becomes more than `most_weight`.
  CellMeans(size_t arms, double most_weight) : cells_(arms), most_weight_(most_weight) {}

  void add(size_t arm, int64_t batch, double number, double weight);
  // Of the cells around the batch size; weight 0: nothing is known.
  Estimate at(size_t arm, int64_t batch) const;
  // The same where cells differ: each other cell counts at most this much, and the less the farther
  // its mean is, in deviations, from this cell's.
  struct Differing {
    double most_weight = 0, deviation = 0;
  };
  Estimate at(size_t arm, int64_t batch, const Differing& differing) const;
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
    Estimate own, kin;
  };
  Both find(size_t arm, int64_t batch, double most_weight) const;

  std::vector<std::array<Estimate, kBatchCells>> cells_;  // [arm]
  const double most_weight_;
};

}  // namespace tlt::spec
