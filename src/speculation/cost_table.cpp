// SPDX-License-Identifier: Apache-2.0
#include "speculation/cost_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace tlt::speculation {

void Curve::add(double x, double y) {
  const auto at = std::ranges::lower_bound(points_, x, {}, &std::pair<double, double>::first);
  if (at != points_.end() && at->first == x)
    at->second = y;
  else
    points_.insert(at, {x, y});
}

double Curve::at(double x) const {
  auto right = std::ranges::lower_bound(points_, x, {}, &std::pair<double, double>::first);
  if (right == points_.begin()) return right->second;
  if (right == points_.end()) {
    --right;
    if (right == points_.begin()) return right->second;
  }
  const auto left = std::prev(right);
  const double share = (x - left->first) / (right->first - left->first);
  return left->second + share * (right->second - left->second);
}

CostTable::CostTable(const std::vector<ForwardCost>& forwards, const std::vector<DraftCost>& drafts)
    : drafts_(drafts) {
  TLT_CHECK_INPUT(!forwards.empty(), "no forward pass was measured; give at least one");
  for (const ForwardCost& cost : forwards) {
    TLT_CHECK_INPUT(cost.seconds > 0 && cost.batch > 0 && cost.rows > 0, "a forward pass of ",
                    cost.rows, " rows and ", cost.batch, " sequences took ", cost.seconds,
                    " seconds; give positive numbers");
    const auto batch = static_cast<double>(cost.batch), context = static_cast<double>(cost.context);
    auto of = std::ranges::lower_bound(by_context_, context, {}, &ContextCosts::context);
    if (of == by_context_.end() || of->context != context)
      of = by_context_.insert(of, {context, {}});
    auto its = std::ranges::lower_bound(of->by_batch, batch, {}, &BatchCosts::batch);
    if (its == of->by_batch.end() || its->batch != batch)
      its = of->by_batch.insert(its, {batch, {}});
    its->seconds.add(static_cast<double>(cost.rows), cost.seconds);
  }
  for (const DraftCost& cost : drafts_)
    TLT_CHECK_INPUT(cost.seconds >= 0 && cost.batch > 0, "a proposal of ", cost.kind, " for ",
                    cost.batch, " sequences took ", cost.seconds, " seconds; give numbers from 0");
}

double CostTable::target_seconds(double rows, double batch, double context) const {
  auto right = std::ranges::lower_bound(by_context_, context, {}, &ContextCosts::context);
  if (right == by_context_.end() && by_context_.size() > 1) --right;
  if (right == by_context_.begin()) return right->seconds(rows, batch);
  const auto left = std::prev(right);
  const double before = left->seconds(rows, batch);
  if (right == by_context_.end()) return before;
  // A longer context never costs less: noise.
  const double upper = std::max(before, right->seconds(rows, batch));
  const double share = (context - left->context) / (right->context - left->context);
  return before + share * (upper - before);
}

// Of fewer rows than the larger batch has sequences: as much more than for the smaller batch as
// with that many rows.
double CostTable::ContextCosts::seconds(double rows, double batch) const {
  const auto right = std::ranges::lower_bound(by_batch, batch, {}, &BatchCosts::batch);
  if (right == by_batch.end()) return std::prev(right)->seconds.at(rows);
  if (right == by_batch.begin() || right->batch == batch) return right->seconds.at(rows);
  const auto left = std::prev(right);
  const double share = (batch - left->batch) / (right->batch - left->batch);
  const double both = std::max(rows, right->batch);  // rows that both can have
  return left->seconds.at(rows) + share * (right->seconds.at(both) - left->seconds.at(both));
}

Curve CostTable::draft_curve(const Arm& arm) const {
  const auto distance = [&](const drafter::Strategy& strategy) {
    return std::pair(std::abs(strategy.width - arm.strategy.width),
                     std::abs(strategy.depth - arm.strategy.depth));
  };
  const DraftCost* nearest = nullptr;
  for (const DraftCost& cost : drafts_)
    if (cost.kind == arm.kind &&
        (!nearest || distance(cost.strategy) < distance(nearest->strategy)))
      nearest = &cost;
  Curve curve;
  for (const DraftCost& cost : drafts_)
    if (nearest && cost.kind == arm.kind && cost.strategy == nearest->strategy)
      curve.add(static_cast<double>(cost.batch), cost.seconds *
                                                     static_cast<double>(arm.strategy.depth) /
                                                     static_cast<double>(cost.strategy.depth));
  return curve;
}

}  // namespace tlt::speculation
