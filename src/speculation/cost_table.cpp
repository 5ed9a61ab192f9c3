// SPDX-License-Identifier: Apache-2.0
#include "speculation/cost_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"

namespace tlt::speculation {
namespace {

// The first entry from x on; the last one if there is none.
template <class Entries>
auto entry_from(const Entries& entries, double x) {
  const auto found =
      std::ranges::lower_bound(entries, x, {}, [](const auto& it) { return it.first; });
  return found == entries.end() ? std::prev(found) : found;
}

template <class Key, class Value>
std::vector<std::pair<Key, Value>> to_vector(const std::map<Key, Value>& map) {
  return {map.begin(), map.end()};
}

}  // namespace

double Curve::at(double x) const { return CurveReader(*this).at(x); }

double CurveReader::at(double x) {
  const auto& points = *points_;
  if (points.size() == 1 || x <= points.front().first) return points.front().second;
  while (right_ + 1 < points.size() && points[right_].first < x) ++right_;
  while (right_ > 1 && points[right_ - 1].first >= x) --right_;
  const auto [from, low] = points[right_ - 1];
  const auto [to, high] = points[right_];
  return low + (x - from) / (to - from) * (high - low);
}

CostTable::CostTable(const std::vector<ForwardCost>& forwards,
                     const std::vector<DraftCost>& drafts) {
  TLT_CHECK_INPUT(!forwards.empty(), "no forward pass was measured; give at least one");
  std::map<double, std::map<double, std::map<double, double>>> all;  // context, batch, rows
  for (const auto& [batch, rows, seconds, context] : forwards) {
    TLT_CHECK_INPUT(seconds > 0 && batch > 0 && rows > 0, "a forward pass of ", rows, " rows and ",
                    batch, " sequences took ", seconds, " seconds; give positive numbers");
    all[static_cast<double>(context)][static_cast<double>(batch)][static_cast<double>(rows)] =
        seconds;
  }
  for (const DraftCost& cost : drafts)
    TLT_CHECK_INPUT(cost.seconds >= 0 && cost.batch > 0, "a proposal of ", cost.kind, " for ",
                    cost.batch, " sequences took ", cost.seconds, " seconds; give numbers from 0");
  auto measured = std::make_shared<Measured>();
  measured->drafts = drafts;
  for (const auto& [context, batches] : all) {
    ByBatch by_batch;
    for (const auto& [batch, curve] : batches) by_batch.push_back({batch, {to_vector(curve)}});
    measured->added.push_back({context, std::move(by_batch)});
  }
  measured->shortest = std::exchange(measured->added.front().second, {});
  for (auto& [context, by_batch] : measured->added)
    for (auto& [batch, curve] : by_batch)
      for (auto& [rows, more] : curve.points)  // a longer context never costs less: noise
        more = std::max(0.0, more - around(measured->shortest, batch).seconds(rows));
  measured_ = std::move(measured);
}

CostTable::Around CostTable::around(const ByBatch& costs, double batch) {
  const auto right = entry_from(costs, batch);
  if (right == costs.begin() || right->first <= batch) return {.right = CurveReader(right->second)};
  const auto left = std::prev(right);
  return {.right = CurveReader(right->second),
          .left = CurveReader(left->second),
          .share = (batch - left->first) / (right->first - left->first),
          .right_batch = right->first};
}

// Of fewer rows than the larger batch has sequences: as much more than for the smaller batch as
// with that many rows.
double CostTable::Around::seconds(double rows) {
  if (!left) return right.at(rows);
  const double both = std::max(rows, right_batch);  // rows that both can have
  const double left_seconds = left->at(both);
  const double more = share * (right.at(both) - left_seconds);
  return (rows < both ? left->at(rows) : left_seconds) + more;
}

CostTable::Passes CostTable::passes(double batch, double context) const {
  const auto& added = measured_->added;
  const auto find = [&](const ByBatch& more) -> std::optional<Around> {
    if (more.empty()) return std::nullopt;
    return around(more, batch);
  };
  Passes passes(around(measured_->shortest, batch));
  if (added.size() == 1 || context <= added.front().first) return passes;
  const auto right = entry_from(added, context), left = std::prev(right);
  passes.before_ = find(left->second);
  passes.after_ = find(right->second);
  passes.share_ = (context - left->first) / (right->first - left->first);
  return passes;
}

double CostTable::Passes::seconds(double rows) {
  const double before = before_ ? before_->seconds(rows) : 0,
               after = after_ ? after_->seconds(rows) : 0;
  return shortest_.seconds(rows) + (before + share_ * (after - before));
}

double CostTable::target_seconds(double rows, double batch, double context) const {
  return passes(batch, context).seconds(rows);
}

double CostTable::ridge() const {
  double most = 1, seconds_of_most = target_seconds(1, 1);
  for (const auto& [batch, curve] : measured_->shortest)
    if (const auto& [rows, seconds] = curve.points.back(); rows > most)
      most = rows, seconds_of_most = seconds;
  return target_seconds(1, 1) * most / seconds_of_most;
}

Curve CostTable::draft_curve(const Arm& arm) const {
  std::map<double, double> points;
  const DraftCost* nearest = nullptr;
  const auto distance = [&](const DraftCost& cost) {
    return std::pair(std::abs(cost.strategy.width - arm.strategy.width),
                     std::abs(cost.strategy.depth - arm.strategy.depth));
  };
  for (const DraftCost& cost : measured_->drafts)
    if (cost.kind == arm.kind && (!nearest || distance(cost) < distance(*nearest))) nearest = &cost;
  for (const auto& [kind, strategy, batch, seconds] : measured_->drafts)
    if (nearest && kind == arm.kind && strategy == nearest->strategy)
      points[static_cast<double>(batch)] =
          seconds * static_cast<double>(arm.strategy.depth) / static_cast<double>(strategy.depth);
  return {to_vector(points)};
}

}  // namespace tlt::speculation
