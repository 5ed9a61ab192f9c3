// DriftTrigger: decides whether training the draft model is worthwhile.
//
// Training continues while each training improves acceptance on held-out responses; when the latest
// kPatience trainings together gained less than kLeastGain it rests. In steps without training,
// because it rests or because other work was worth more, acceptance is watched: once it has fallen
// by kDrift, because the policy has changed, training starts again, and is expected to regain what
// was lost.
//
// Not here   how acceptance is measured (idle_trainer.h).
// Threading  none of its own. A value: copies are independent.
//
//   if (trigger.wants_training()) …                 // after the step one of:
//   trigger.trained(before, after, seconds);        // acceptance length on held-out responses
//   trigger.rested(measured);                       // the step had no training
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace tlt::drafter_training {

class DriftTrigger {
 public:
  static constexpr size_t kPatience = 4;       // trainings
  static constexpr double kLeastGain = 0.02;   // relative gain that they must have together
  static constexpr double kDrift = 0.05;       // relative loss of acceptance
  static constexpr double kNewestShare = 0.3;  // weight of a measurement in the watched mean

  bool wants_training() const { return !rests_; }

  // The draft model was trained, by all workers together for this time: its acceptance without the
  // training and with it, on the same responses. Values that are not above 0 (nothing to measure on)
  // are ignored.
  void trained(double before, double after, double seconds);
  // The relative gain in acceptance for each second of the latest trainings; infinity: there was
  // none.
  double gain_per_second() const;
  // The draft model was measured in a step without training.
  void rested(double acceptance);

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);  // throws nlohmann's exceptions

 private:
  bool rests_ = false;
  std::vector<double> gains_, seconds_;  // of the latest kPatience trainings
  double level_ = 0;                     // acceptance after the last one
  double watched_ = 0;                   // mean since then
};

}  // namespace tlt::drafter_training
