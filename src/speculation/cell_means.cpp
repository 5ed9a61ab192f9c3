// SPDX-License-Identifier: Apache-2.0
#include "speculation/cell_means.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tlt::speculation {
namespace {

// [cell][other]: the weight of a step at one batch size for another, by their distance in half
// octaves.
constexpr auto kKinship = [] {
  constexpr std::array<double, 5> kByDistance = {1, 0.5, 0.2, 0.1, 0.05};
  std::array<std::array<double, kBatchCells>, kBatchCells> kinship{};
  for (size_t cell = 0; cell < kBatchCells; ++cell)
    for (size_t other = 0; other < kBatchCells; ++other) {
      const size_t distance = cell > other ? cell - other : other - cell;
      kinship[cell][other] = kByDistance[std::min(distance, kByDistance.size() - 1)];
    }
  return kinship;
}();

}  // namespace

void CellMeans::add(size_t arm, int64_t batch, double number, double weight) {
  drafter::Estimate& cell = cells_[arm][batch_cell(batch)];
  cell.add(number, weight);
  cell.weight = std::min(cell.weight, most_weight_);
}

// Not by drafter::Estimate::add(), which divides, and in sums that do not wait for one another: this is done
// for every arm and step.
CellMeans::Both CellMeans::find(size_t arm, int64_t batch, double most_weight) const {
  // The cell itself has kinship 1.
  constexpr size_t kSums = 3;
  static_assert(kBatchCells % kSums == 0);
  const std::array<drafter::Estimate, kBatchCells>& cells = cells_[arm];
  const std::array<double, kBatchCells>& kinship = kKinship[batch_cell(batch)];
  std::array<double, kSums> weights = {}, sums = {};
  for (size_t first = 0; first < kBatchCells; first += kSums)
    for (size_t i = 0; i < kSums; ++i) {
      const double its = std::min(cells[first + i].weight, most_weight) * kinship[first + i];
      weights[i] += its;
      sums[i] += its * cells[first + i].mean;
    }
  const drafter::Estimate& own = cells[batch_cell(batch)];
  const double counted = std::min(own.weight, most_weight);
  const double kin = weights[0] + weights[1] + weights[2] - counted;
  const double sum = sums[0] + sums[1] + sums[2] - counted * own.mean;
  return {own, {kin > 0 ? sum / kin : 0, std::max(kin, 0.0)}};
}

drafter::Estimate CellMeans::at(size_t arm, int64_t batch) const {
  auto [own, kin] = find(arm, batch, most_weight_);
  kin.add(own.mean, own.weight);
  return kin;
}

drafter::Estimate CellMeans::at(size_t arm, int64_t batch, const Differing& differing) const {
  auto [own, kin] = find(arm, batch, differing.most_weight);
  const double away = (own.mean - kin.mean) / differing.deviation;
  const double known = own.weight / (1 + own.weight);
  kin.weight /= 1 + away * away * known;
  kin.add(own.mean, own.weight);
  return kin;
}

void CellMeans::forget(double kept_share, double kept_weight) {
  for (size_t arm = 0; arm < cells_.size(); ++arm) forget(arm, kept_share, kept_weight);
}

void CellMeans::forget(size_t arm, double kept_share, double kept_weight) {
  for (drafter::Estimate& cell : cells_[arm])
    if (cell.weight > kept_weight) cell.weight = std::max(cell.weight * kept_share, kept_weight);
}

nlohmann::json CellMeans::save() const { return cells_; }

void CellMeans::restore(const nlohmann::json& state) { state.get_to(cells_); }

}  // namespace tlt::speculation
