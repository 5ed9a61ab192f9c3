// Progress: says how far a long piece of work is, how fast it goes and when it will end: in place
// on a terminal, elsewhere as a log line now and then, or not at all.
//
// Threading  one thread at a time. One at a time in a process.
//
//   Progress progress("rollout", /*total=*/512);
//   progress.advance(3, "18.2 tokens/s");
//   rollout 40/512 (7%) 12.3/s, ETA 0:38; 18.2 tokens/s
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tlt {

class Progress {
 public:
  // An interval that leaves log files and pipes without a line.
  static constexpr double kTerminalOnly = std::numeric_limits<double>::infinity();

  // `interval_seconds` between two log lines where there is no terminal. Borrows the clock.
  Progress(std::string what, int64_t total, double interval_seconds = 30,
           const Clock& clock = steady_clock());

  // Takes the line from the terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t count, std::string_view note = {});
  // `done` were done before; they count for neither rate nor ETA.
  void start_at(int64_t done) { done_ = before_ = done; }
  // There is more to do than was said.
  void expect(int64_t total) { total_ = std::max(total_, total); }

  // Whether advance() would show a line now: to make the note only then.
  bool is_due() const;

  int64_t done() const { return done_; }

  // The line as it stands now.
  std::string line(std::string_view note = {}) const;

 private:
  const std::string what_;
  int64_t total_;
  const double interval_seconds_;
  const Clock& clock_;
  const double start_;
  double last_shown_;
  int64_t done_ = 0, before_ = 0;
};

// 75 -> "1:15", 3675 -> "1:01:15".
std::string format_duration(double seconds);

}  // namespace tlt
