// SPDX-License-Identifier: Apache-2.0
#include "speculation/cost_table.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace tlt::speculation {
namespace {

// Between the two entries around x, or beyond the last two.
template <class Map, class Seconds>
double interpolate(const Map& map, double x, const Seconds& seconds) {
  if (map.size() == 1 || x <= map.begin()->first) return seconds(map.begin()->second);
  auto right = map.lower_bound(x);
  if (right == map.end()) --right;
  const auto left = std::prev(right);
  const double before = seconds(left->second), after = seconds(right->second);
  return before + (x - left->first) / (right->first - left->first) * (after - before);
}

}  // namespace

double Curve::at(double x) const { return interpolate(points, x, std::identity()); }

CostTable::CostTable(const std::vector<ForwardCost>& forwards, const std::vector<DraftCost>& drafts)
    : drafts_(drafts) {
  TLT_CHECK_INPUT(!forwards.empty(), "no forward pass was measured; give at least one");
  for (const auto& [batch, rows, seconds, context] : forwards) {
    TLT_CHECK_INPUT(seconds > 0 && batch > 0 && rows > 0, "a forward pass of ", rows, " rows and ",
                    batch, " sequences took ", seconds, " seconds; give positive numbers");
    ByBatch& by_batch = added_[static_cast<double>(context)];
    by_batch[static_cast<double>(batch)].points[static_cast<double>(rows)] = seconds;
  }
  shortest_ = std::exchange(added_.begin()->second, {});
  for (auto& [context, by_batch] : added_)
    for (auto& [batch, curve] : by_batch)
      for (auto& [rows, more] : curve.points)  // a longer context never costs less: noise
        more = std::max(0.0, more - seconds(shortest_, rows, batch));
  for (const DraftCost& cost : drafts_)
    TLT_CHECK_INPUT(cost.seconds >= 0 && cost.batch > 0, "a proposal of ", cost.kind, " for ",
                    cost.batch, " sequences took ", cost.seconds, " seconds; give numbers from 0");
}

double CostTable::target_seconds(double rows, double batch, double context) const {
  return seconds(shortest_, rows, batch) + interpolate(added_, context, [&](const ByBatch& more) {
           return more.empty() ? 0 : seconds(more, rows, batch);
         });
}

double CostTable::ridge() const {
  double most = 1, seconds_of_most = target_seconds(1, 1);
  for (const auto& [batch, curve] : shortest_)
    if (const auto& [rows, seconds] = *curve.points.rbegin(); rows > most)
      most = rows, seconds_of_most = seconds;
  return target_seconds(1, 1) * most / seconds_of_most;
}

// Of fewer rows than the larger batch has sequences: as much more than for the smaller batch as
// with that many rows.
double CostTable::seconds(const ByBatch& by_batch, double rows, double batch) {
  const auto right = by_batch.lower_bound(batch);
  if (right == by_batch.end()) return by_batch.rbegin()->second.at(rows);
  if (right == by_batch.begin() || right->first == batch) return right->second.at(rows);
  const auto left = std::prev(right);
  const double share = (batch - left->first) / (right->first - left->first);
  const double both = std::max(rows, right->first);  // rows that both can have
  return left->second.at(rows) + share * (right->second.at(both) - left->second.at(both));
}

Curve CostTable::draft_curve(const Arm& arm) const {
  Curve curve;
  const DraftCost* nearest = nullptr;
  const auto distance = [&](const DraftCost& cost) {
    return std::pair(std::abs(cost.strategy.width - arm.strategy.width),
                     std::abs(cost.strategy.depth - arm.strategy.depth));
  };
  for (const DraftCost& cost : drafts_)
    if (cost.kind == arm.kind && (!nearest || distance(cost) < distance(*nearest))) nearest = &cost;
  for (const auto& [kind, strategy, batch, seconds] : drafts_)
    if (nearest && kind == arm.kind && strategy == nearest->strategy)
      curve.points[static_cast<double>(batch)] =
          seconds * static_cast<double>(arm.strategy.depth) / static_cast<double>(strategy.depth);
  return curve;
}

}  // namespace tlt::speculation
