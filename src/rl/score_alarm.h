// ScoreAlarm: detects that the training score rises while the held-out score falls, which indicates
// reward hacking or overfitting to the training rows.
//
// A point is a validation: its held-out score, and the mean training score since the previous
// validation. The median of the last three points is compared with the median of the three earlier
// consecutive points whose held-out score was best. The alarm triggers if, between the two,
//   held-out   fell by more than 5 standard errors of such a difference, and by more than twice
//              the standard error of one validation
//   training   rose by more than 2 standard errors
// and there are at least 8 points. The noise is estimated from the points themselves: the median
// difference of consecutive points, or of points 3 apart if that is larger. It uses medians so that
// one bad validation does not trigger it, and a collapse does not inflate its own noise estimate.
//
// In simulated runs of 100 validations without a fall it triggers in 1 of 1,000 runs; in 1 of 12 if
// the noise of consecutive points has correlation 0.5, and in 1 of 50 if every 20th point has five
// times the noise. A fall per point of a third of the noise is detected after 14 points, a collapse
// after 2 (score_alarm_test.cpp).
//
// Threading  one thread.
//
//   for (…) alarm.add_training(score);
//   if (const auto divergence = alarm.add_validation(held_out, standard_error)) log_warning(…);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"

namespace tlt::rl {

// Scores of the best earlier points (before) and of the last ones (now).
struct Divergence {
  double held_out_before = 0, held_out_now = 0;
  double training_before = 0, training_now = 0;
};

class ScoreAlarm {
 public:
  // Adds the mean score of an RL step.
  void add_training(double score);
  // Adds the score of a validation and its standard error. nullopt: no alarm. A validation before
  // the first RL step is ignored.
  std::optional<Divergence> add_validation(double score, double standard_error);

  int64_t points() const { return std::ssize(points_); }

 private:
  struct Point {
    double training = 0, held_out = 0;
  };
  Point block(int64_t first) const;      // median of three points
  Point deviation(int64_t apart) const;  // standard deviation of the noise

  std::vector<Point> points_;
  double training_sum_ = 0;  // since the last validation
  int64_t training_steps_ = 0;
};

// Adds the scores in a step's metrics, of training and validation.
std::optional<Divergence> tell(ScoreAlarm& alarm, const Metrics& metrics);
// The same for all rows of a run's metrics file; does nothing if there is no file.
void replay(ScoreAlarm& alarm, const std::string& metrics_file);

}  // namespace tlt::rl
