// SPDX-License-Identifier: Apache-2.0
#include "speculation/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::speculation {
namespace {

constexpr double kTableDeviation = 0.08;  // of an arm's log seconds, relative to others
constexpr double kMaxTableWeight = 4;
constexpr double kNearDeviation = 0.02;    // of what an arm is off by, between like batch sizes …
constexpr double kFarDeviation = 0.1;      // … and between others
constexpr double kNewDeviation = 0.3;      // of what is not known of an arm that is new at one
constexpr double kNewWeight = 4;           // steps after which an arm is hardly new at a batch size
constexpr double kMaxCellWeight = 200;     // steps remembered of an arm at a batch size …
constexpr int64_t kForgetSteps = 16;       // … and after this many …
constexpr double kKeptTableShare = 0.984;  // … this much of them is left
constexpr double kNeverForgotten = 1;
constexpr double kLeastWeight = 2;   // of an arm that is in doubt
constexpr double kKnownWeight = 20;  // an arm with more steps does not count more for others
constexpr double kMostSurprise = 1;  // log of the ratio, and in standard deviations …
constexpr double kMostDeviations = 3;
constexpr double kDoubtShare = 0.1;        // … beyond which this share of its square is variance
constexpr double kPaceDrift = 0.003;       // standard deviation of its change from step to step
constexpr double kDeviationOfMean = 1.25;  // standard deviation per mean error
constexpr double kSpreadRate = 0.02;

}  // namespace

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
    auto of = std::ranges::lower_bound(by_context_, context, {}, &OfContext::context);
    if (of == by_context_.end() || of->context != context)
      of = by_context_.insert(of, {context, {}});
    auto its = std::ranges::lower_bound(of->by_batch, batch, {}, &OfBatch::batch);
    if (its == of->by_batch.end() || its->batch != batch)
      its = of->by_batch.insert(its, {batch, {}});
    its->seconds.add(static_cast<double>(cost.rows), cost.seconds);
  }
  for (const DraftCost& cost : drafts_)
    TLT_CHECK_INPUT(cost.seconds >= 0 && cost.batch > 0, "a proposal of ", cost.kind, " for ",
                    cost.batch, " sequences took ", cost.seconds, " seconds; give numbers from 0");
}

double CostTable::target_seconds(double rows, double batch, double context) const {
  auto right = std::ranges::lower_bound(by_context_, context, {}, &OfContext::context);
  if (right == by_context_.end() && by_context_.size() > 1) --right;
  if (right == by_context_.begin()) return right->seconds(rows, batch);
  const auto left = std::prev(right);
  const double before = left->seconds(rows, batch);
  if (right == by_context_.end()) return before;
  // Longer texts never cost less: noise.
  const double upper = std::max(before, right->seconds(rows, batch));
  const double share = (context - left->context) / (right->context - left->context);
  return before + share * (upper - before);
}

double CostTable::OfContext::seconds(double rows, double batch) const {
  const auto right = std::ranges::lower_bound(by_batch, batch, {}, &OfBatch::batch);
  if (right == by_batch.end()) return std::prev(right)->seconds.at(rows);
  if (right == by_batch.begin() || right->batch == batch) return right->seconds.at(rows);
  const auto left = std::prev(right);
  const double share = (batch - left->batch) / (right->batch - left->batch);
  const auto between = [&](double left_rows, double right_rows) {
    return std::lerp(left->seconds.at(left_rows), right->seconds.at(right_rows), share);
  };
  const double least = right->batch;  // rows; with fewer, the larger batch was not measured
  if (rows >= least) return between(rows, rows);
  const double plain = between(left->batch, least);
  return std::lerp(plain, between(least, least), std::max(0.0, (rows - batch) / (least - batch)));
}

Curve CostTable::draft_curve(const Arm& arm) const {
  Curve curve;
  if (arm.is_off()) return curve;
  const int64_t width = arm.strategy.width;
  const DraftCost* narrow = find_draft(arm, [&](int64_t its) { return its <= width; });
  const DraftCost* wide = find_draft(arm, [&](int64_t its) { return its >= width; });
  if (!narrow) narrow = wide;
  if (!narrow) return curve;
  if (!wide) wide = narrow;
  const auto level = [](const DraftCost& cost) {
    return cost.seconds / static_cast<double>(cost.strategy.depth);
  };
  const int64_t between = wide->strategy.width - narrow->strategy.width;
  const double share = between == 0 ? 0
                                    : static_cast<double>(width - narrow->strategy.width) /
                                          static_cast<double>(between);
  for (const DraftCost& a : drafts_)
    for (const DraftCost& b : drafts_)
      if (a.kind == arm.kind && b.kind == arm.kind && a.batch == b.batch &&
          a.strategy == narrow->strategy && b.strategy == wide->strategy)
        curve.add(static_cast<double>(a.batch),
                  static_cast<double>(arm.strategy.depth) * std::lerp(level(a), level(b), share));
  return curve;
}

// Of the kind's strategies whose width `may` be, the nearest in width, depth and verify.
const DraftCost* CostTable::find_draft(const Arm& arm,
                                       const std::function<bool(int64_t)>& may) const {
  const auto distance = [&](const drafter::Strategy& strategy) {
    return std::tuple(std::abs(strategy.width - arm.strategy.width),
                      std::abs(strategy.depth - arm.strategy.depth),
                      std::abs(strategy.verify - arm.strategy.verify));
  };
  const DraftCost* nearest = nullptr;
  for (const DraftCost& cost : drafts_)
    if (cost.kind == arm.kind && may(cost.strategy.width) &&
        (!nearest || distance(cost.strategy) < distance(nearest->strategy)))
      nearest = &cost;
  return nearest;
}

StepCosts::StepCosts(const std::vector<Arm>& arms, CostTable table)
    : arms_(arms),
      table_(std::move(table)),
      cells_(arms.size(), kMaxCellWeight),
      offsets_(arms.size()),
      predictions_(arms.size()) {
  for (const Arm& arm : arms_) drafts_.push_back(table_.draft_curve(arm));
}

// Prior weight of the measured table, in equivalent observed steps: smaller when steps differ less.
double StepCosts::table_weight() const {
  const double deviations = kDeviationOfMean * spread_ / kTableDeviation;
  return std::min(deviations * deviations, kMaxTableWeight);
}

// So do the steps at another batch size.
CellMeans::Differing StepCosts::differing() const {
  const double deviations = kDeviationOfMean * spread_ / kNearDeviation;
  return {.most_weight = deviations * deviations, .deviation = kFarDeviation};
}

double StepCosts::table_seconds(size_t arm, const Load& load, double rows) const {
  const auto sequences = static_cast<double>(load.batch);
  return table_.target_seconds(rows, sequences, load.context) + draft_seconds(arm, sequences);
}

void StepCosts::find_offsets(int64_t batch) {
  common_ = {};
  const CellMeans::Differing between = differing();
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    offsets_[arm] = cells_.at(arm, batch, between);
    common_.add(offsets_[arm].mean, std::min(offsets_[arm].weight, kKnownWeight));
  }
}

// REQUIRES: the arm's offset and what is common of all have been found.
drafter::Estimate StepCosts::offset(size_t arm) const {
  drafter::Estimate offset = offsets_[arm];
  offset.add(common_.mean, table_weight());
  return offset;
}

std::span<const StepCosts::Prediction> StepCosts::predict(const Load& load,
                                                          std::span<const double> rows) {
  find_offsets(load.batch);
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    const drafter::Estimate known = offset(arm);
    predictions_[arm] = {
        std::log(table_seconds(arm, load, rows[arm])) + log_speed_factor_ + known.mean,
        kDeviationOfMean * spread_ / std::sqrt(known.weight)};
  }
  return predictions_;
}

// What all arms have in common is taken from the last prediction: to find it takes longest.
void StepCosts::record(size_t arm, const Load& load, double rows, double seconds) {
  const int64_t batch = load.batch;
  offsets_[arm] = cells_.at(arm, batch, differing());
  const drafter::Estimate known = offset(arm);
  const double table = std::log(table_seconds(arm, load, rows));
  const double expected = table + log_speed_factor_ + known.mean;
  const double surprise = std::clamp(std::log(seconds) - expected, -kMostSurprise, kMostSurprise);
  const double noise = kDeviationOfMean * kDeviationOfMean * spread_ * spread_;
  speed_variance_ = std::min(speed_variance_ + kPaceDrift * kPaceDrift, 1.0);
  const double own = cells_.own_weight(arm, batch);
  const double of_arm = noise / known.weight + kNewDeviation * kNewDeviation / (1 + own);
  const double variance = noise + of_arm + speed_variance_;
  const double limit = kMostDeviations * std::sqrt(variance);
  const double believed = std::clamp(surprise, -limit, limit);

  const double weight = noise / (noise + speed_variance_);
  const double share = speed_variance_ / variance;
  log_speed_factor_ += share * believed;
  speed_variance_ *= 1 - share;
  if (std::abs(surprise) > limit)
    speed_variance_ += kDoubtShare * surprise * surprise * own / (own + kNewWeight);
  spread_ += kSpreadRate * (std::abs(believed) - spread_);
  spread_ = std::max(spread_, 0.005);
  if (++steps_ % kForgetSteps == 0) cells_.forget(kKeptTableShare, kNeverForgotten);
  cells_.add(arm, batch, expected + believed - table - log_speed_factor_, weight);
}

void StepCosts::doubt(size_t arm, double kept_share) {
  cells_.forget(arm, kept_share, kLeastWeight);
}

nlohmann::json StepCosts::save() const {
  return {{"cells", cells_.save()},
          {"common", common_},
          {"steps", steps_},
          {"pace", log_speed_factor_},
          {"pace_variance", speed_variance_},
          {"spread", spread_}};
}

void StepCosts::restore(const nlohmann::json& state) {
  cells_.restore(state.at("cells"));
  state.at("common").get_to(common_);
  state.at("steps").get_to(steps_);
  state.at("pace").get_to(log_speed_factor_);
  state.at("pace_variance").get_to(speed_variance_);
  state.at("spread").get_to(spread_);
}

}  // namespace tlt::speculation
