// ScoreQueue: when responses are scored that wait for the reward, first come, first served.
//
// Each takes `seconds`; `concurrency` of them are scored at a time (0: any number).
//
// Owns       the times at which each scorer is free.
// Threading  one thread.
//
//   const double scored_at = queue.scored_at(now);  // of a response that ends now
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace tlt::simulate {

class ScoreQueue {
 public:
  ScoreQueue(double seconds, int64_t concurrency) : seconds_(seconds), concurrency_(concurrency) {}

  // REQUIRES: calls of a step are in order of time.
  double scored_at(double now) {
    double begin = now;
    if (concurrency_ > 0 && std::ssize(free_at_) == concurrency_) {
      begin = std::max(now, free_at_.top());
      free_at_.pop();
    }
    const double end = begin + seconds_;
    if (concurrency_ > 0) free_at_.push(end);
    last_ = std::max(last_, end);
    return end;
  }

  void begin_step() { last_ = 0; }
  // When the last response of the step is scored.
  double last() const { return last_; }

 private:
  const double seconds_;
  const int64_t concurrency_;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at_;
  double last_ = 0;
};

}  // namespace tlt::simulate
