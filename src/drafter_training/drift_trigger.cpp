// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/drift_trigger.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

namespace tlt::drafter_training {
namespace {

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

void DriftTrigger::trained(double before, double after, double seconds) {
  if (!(before > 0 && after > 0)) return;
  level_ = watched_ = after;
  gains_.push_back(after / before - 1);
  seconds_.push_back(seconds);
  if (gains_.size() > kPatience) {
    gains_.erase(gains_.begin());
    seconds_.erase(seconds_.begin());
  }
  rests_ = gains_.size() == kPatience && sum(gains_) < kLeastGain;
}

double DriftTrigger::gain_per_second() const {
  return sum(seconds_) > 0 ? sum(gains_) / sum(seconds_) : std::numeric_limits<double>::infinity();
}

void DriftTrigger::rested(double acceptance) {
  if (!(acceptance > 0)) return;
  watched_ += kNewestShare * (acceptance - watched_);
  if (watched_ >= (1 - kDrift) * level_) return;
  rests_ = false;
  if (seconds_.empty()) return;
  seconds_ = {sum(seconds_) / static_cast<double>(seconds_.size())};
  gains_ = {level_ / watched_ - 1};
}

nlohmann::json DriftTrigger::save() const {
  return {{"rests", rests_},
          {"gains", gains_},
          {"seconds", seconds_},
          {"level", level_},
          {"watched", watched_}};
}

void DriftTrigger::restore(const nlohmann::json& state) {
  rests_ = state.at("rests").get<bool>();
  gains_ = state.at("gains").get<std::vector<double>>();
  // Checkpoints of earlier versions have gains without seconds.
  seconds_ = state.value("seconds", std::vector<double>());
  if (seconds_.size() != gains_.size()) gains_.clear(), seconds_.clear();
  level_ = state.at("level").get<double>();
  watched_ = state.at("watched").get<double>();
}

}  // namespace tlt::drafter_training
