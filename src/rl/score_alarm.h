// ScoreAlarm: says when the training score rises while the held-out score falls, the sign of a
// policy that learns the reward's weak points, or its training rows by heart.
//
// A point is a validation: its held-out score, and the mean training score since the one before.
// The median of the last three points is compared with that of the three earlier ones, next to each
// other, whose held-out score was best. It rings when, between the two,
//   held-out   fell by more than 5 standard errors of such a difference, and by more than twice
//              the standard error of one validation
//   training   rose by more than 2 standard errors
// and there are at least 8 points. The noise is what the points themselves have: the median
// difference of points next to each other, or of points 3 apart if that is larger. Medians, so that
// neither one bad validation rings nor a score that breaks down hides in its own noise.
//
// In simulated runs of 100 validations without a fall it rings in 1 of 1,000; in 1 of 12 where half
// of a point's noise lasts to the next one, in 1 of 50 where every 20th point has five times the
// noise. A fall of a third of the noise at each point is noticed after 14, a break-down after 2
// (score_alarm_test.cpp).
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

// Scores of the better points and of the last ones.
struct Divergence {
  double held_out_before = 0, held_out_now = 0;
  double training_before = 0, training_now = 0;
};

class ScoreAlarm {
 public:
  // The mean score of a train step.
  void add_training(double score);
  // That of a validation, and its standard error; nullopt: all is well. A validation before the
  // first train step is no point.
  std::optional<Divergence> add_validation(double score, double standard_error);

  int64_t points() const { return std::ssize(points_); }

 private:
  struct Point {
    double training = 0, held_out = 0;
  };
  Point block(int64_t first) const;      // median of three points
  Point deviation(int64_t apart) const;  // of a point's noise

  std::vector<Point> points_;
  double training_sum_ = 0;  // since the last validation
  int64_t training_steps_ = 0;
};

// Tells the alarm what a step's metrics say, those of the validation included.
std::optional<Divergence> tell(ScoreAlarm& alarm, const Metrics& metrics);
// The same of all rows of a run's metrics file; nothing where there is no file.
void replay(ScoreAlarm& alarm, const std::string& metrics_file);

}  // namespace tlt::rl
