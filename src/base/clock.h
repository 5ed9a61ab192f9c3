// Clock: the source of time, which a test can replace.
//
//   Stopwatch stopwatch;             // or Stopwatch(fake_clock)
//   … work …
//   metrics.set("timing_s/gen", stopwatch.seconds());
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>

#include "base/check.h"

namespace tlt {

class Clock {
 public:
  virtual ~Clock() = default;

  // Seconds since a fixed moment; never decreases. May be called from any thread.
  virtual double seconds() const = 0;
};

// Time since this machine started: the same for all its processes.
class SteadyClock : public Clock {
 public:
  double seconds() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// Advances only when a test advances it.
class FakeClock : public Clock {
 public:
  explicit FakeClock(double seconds = 0) : seconds_(seconds) {}

  double seconds() const override { return seconds_.load(); }

  void advance(double seconds) {
    TLT_CHECK(seconds >= 0, "a clock never goes back: ", seconds);
    seconds_ = seconds_.load() + seconds;
  }

 private:
  std::atomic<double> seconds_;
};

inline const Clock& steady_clock() {
  static const SteadyClock clock;
  return clock;
}

// Seconds since 1970, for timestamps that people and other machines read.
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Seconds as the standard library's clocks count them.
inline std::chrono::steady_clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

// Borrows the clock.
class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock = steady_clock())
      : clock_(&clock), start_(clock.seconds()) {}

  double seconds() const { return clock_->seconds() - start_; }

  // Starts again from zero; returns the seconds until then.
  double restart() {
    const double now = clock_->seconds();
    const double shown = now - start_;
    start_ = now;
    return shown;
  }

 private:
  const Clock* clock_;
  double start_;
};

}  // namespace tlt
