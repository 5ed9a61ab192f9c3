// DriftTrigger: whether training the drafter pays.
//
// It learns as long as each time of training makes it better on responses it has not seen; when the
// latest ones together gave less than kLeastGain it rests. While it rests its acceptance is
// watched: once it has fallen by kDrift, because the policy moved on, it learns again.
//
// Not here   how acceptance is measured (spot_trainer.h).
// Threading  none of its own. A value: copies are independent.
//
//   if (trigger.wants_training()) … else trigger.rested(measured);
//   trigger.trained(before, after);          // tokens a forward pass, on held-out responses
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace tlt::spot {

class DriftTrigger {
 public:
  static constexpr size_t kPatience = 4;       // times of training
  static constexpr double kLeastGain = 0.02;   // that they must give together, as a share
  static constexpr double kDrift = 0.05;       // share of the acceptance that is lost
  static constexpr double kNewestShare = 0.3;  // of a measurement in the mean that is watched

  bool wants_training() const { return !rests_; }

  // The drafter was trained: what it accepts without the training and with it, on the same
  // responses. Values that are not above 0 (nothing to measure on) count as no knowledge.
  void trained(double before, double after);
  // The drafter was measured in a step without training.
  void rested(double acceptance);

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);  // throws nlohmann's exceptions

 private:
  bool rests_ = false;
  std::vector<double> gains_;  // the latest kPatience
  double level_ = 0;           // acceptance when it began to rest
  double watched_ = 0;         // mean since then
};

}  // namespace tlt::spot
