// StepProgress: shows the progress of a step: timeline spans while the engine has work, and, on a
// terminal only, progress of rollouts and updates.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/progress.h"
#include "base/timeline.h"

namespace tlt::rl {

// Names of a phase in the timeline: lane (run/report/timeline_steps.h) and name of its bars.
struct PhaseName {
  std::string lane = "rollout";
  std::string span;  // "step 3"
};

// Progress of a worker's rollout phase. A bar ends when the engine is empty, so idle time is a gap.
class PhaseWatch {
 public:
  // `timeline` may be null. `label`: for the terminal; empty: no terminal output.
  PhaseWatch(Timeline* timeline, PhaseName name, const std::string& label);
  ~PhaseWatch() { set_busy(false); }
  PhaseWatch(const PhaseWatch&) = delete;
  PhaseWatch& operator=(const PhaseWatch&) = delete;

  // Whether the engine has unfinished sequences.
  void set_busy(bool is_busy);

  bool wants_line() const { return progress_ && progress_->is_due(); }
  // State of this worker.
  struct State {
    int64_t done = 0, expected = 0;  // responses
    int64_t running = 0;             // sequences
    int64_t tokens = 0;              // generated in this phase
  };
  // REQUIRES: wants_line().
  void show(const State& state);

 private:
  Timeline* const timeline_;
  const PhaseName name_;
  std::optional<double> busy_since_;
  std::optional<Progress> progress_;
  Stopwatch watch_;
};

// Progress of an update in packs; the callback of Trainer::set_on_pack().
class UpdateProgress {
 public:
  void operator()(int64_t done, int64_t packs);

 private:
  std::optional<Progress> progress_;
};

}  // namespace tlt::rl
