// StepProgress: what a worker shows while it works on a step: spans in the timeline while its
// engine has work, and how far rollouts and updates are, on a terminal only.
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

// What a phase is called: lane of the timeline (timeline_picture.h) and name of its bars.
struct PhaseName {
  std::string lane = "rollout";
  std::string span;  // "step 3"
};

// A worker in a rollout phase. A bar ends when the engine is empty, so that idle time is a gap.
class PhaseWatch {
 public:
  // `timeline` may be null. `says`: for the terminal; empty: nothing is shown there.
  PhaseWatch(Timeline* timeline, PhaseName name, const std::string& says);
  ~PhaseWatch() { set_busy(false); }
  PhaseWatch(const PhaseWatch&) = delete;
  PhaseWatch& operator=(const PhaseWatch&) = delete;

  // Whether the engine has unfinished sequences.
  void set_busy(bool is_busy);

  bool wants_line() const { return progress_ && progress_->is_due(); }
  // Of this worker. REQUIRES: wants_line().
  struct State {
    int64_t done = 0, expected = 0;  // responses
    int64_t running = 0;             // sequences
    int64_t tokens = 0;              // of this phase
  };
  void show(const State& state);

 private:
  Timeline* const timeline_;
  const PhaseName name_;
  std::optional<double> busy_since_;
  std::optional<Progress> progress_;
  Stopwatch watch_;
};

// The packs of an update, as Trainer tells them.
class UpdateProgress {
 public:
  void operator()(int64_t done, int64_t packs);

 private:
  std::optional<Progress> progress_;
};

}  // namespace tlt::rl
