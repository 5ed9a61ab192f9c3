// SPDX-License-Identifier: Apache-2.0
#include "spec/cell_means.h"

#include <nlohmann/json.hpp>

namespace tlt::spec {
namespace {

// What a step at one batch size says about another, so many half octaves away.
double kinship(size_t cell, size_t other) {
  constexpr std::array<double, 5> kKinship = {1, 0.5, 0.2, 0.1, 0.05};
  return kKinship[std::min(cell > other ? cell - other : other - cell, kKinship.size() - 1)];
}

}  // namespace

void to_json(nlohmann::json& json, const Estimate& estimate) {
  json = {estimate.mean, estimate.weight};
}

void from_json(const nlohmann::json& json, Estimate& estimate) {
  estimate = {json.at(0).get<double>(), json.at(1).get<double>()};
}

void CellMeans::add(size_t arm, int64_t batch, double number, double weight) {
  Estimate& cell = cells_[arm][batch_cell(batch)];
  cell.add(number, weight);
  cell.weight = std::min(cell.weight, most_weight_);
}

Estimate CellMeans::at(size_t arm, int64_t batch) const {
  const size_t cell = batch_cell(batch);
  double weight = 0, sum = 0;  // not by add(), which divides: this is done for every arm and step
  for (size_t other = 0; other < kBatchCells; ++other) {
    const double its = cells_[arm][other].weight * kinship(cell, other);
    weight += its;
    sum += its * cells_[arm][other].mean;
  }
  return {weight > 0 ? sum / weight : 0, weight};
}

void CellMeans::forget(double kept_share, double kept_weight) {
  for (size_t arm = 0; arm < cells_.size(); ++arm) forget(arm, kept_share, kept_weight);
}

void CellMeans::forget(size_t arm, double kept_share, double kept_weight) {
  for (Estimate& cell : cells_[arm])
    if (cell.weight > kept_weight) cell.weight = std::max(cell.weight * kept_share, kept_weight);
}

nlohmann::json CellMeans::save() const { return cells_; }

void CellMeans::restore(const nlohmann::json& state) { state.get_to(cells_); }

}  // namespace tlt::spec
