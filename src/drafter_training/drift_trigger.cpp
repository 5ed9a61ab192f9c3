// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/drift_trigger.h"

#include <nlohmann/json.hpp>
#include <numeric>

namespace tlt::drafter_training {

void DriftTrigger::trained(double before, double after) {
  if (!(before > 0 && after > 0)) return;
  gains_.push_back(after / before - 1);
  if (gains_.size() > kPatience) gains_.erase(gains_.begin());
  if (gains_.size() < kPatience || std::accumulate(gains_.begin(), gains_.end(), 0.0) >= kLeastGain)
    return;
  rests_ = true;
  level_ = watched_ = after;
  gains_.clear();
}

void DriftTrigger::rested(double acceptance) {
  if (!rests_ || !(acceptance > 0)) return;
  watched_ += kNewestShare * (acceptance - watched_);
  if (watched_ < (1 - kDrift) * level_) rests_ = false;
}

nlohmann::json DriftTrigger::save() const {
  return {{"rests", rests_}, {"gains", gains_}, {"level", level_}, {"watched", watched_}};
}

void DriftTrigger::restore(const nlohmann::json& state) {
  rests_ = state.at("rests").get<bool>();
  gains_ = state.at("gains").get<std::vector<double>>();
  level_ = state.at("level").get<double>();
  watched_ = state.at("watched").get<double>();
}

}  // namespace tlt::drafter_training
