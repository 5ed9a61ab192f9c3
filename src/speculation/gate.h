// SpeculationGate: whether a step may speculate at all (docs/paper_map.md, note 10).
//
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "speculation/speculation_options.h"

namespace tlt::speculation {

class SpeculationGate {
 public:
  explicit SpeculationGate(const SpeculationOptions& options);

  // Of the step that comes now; once a step.
  bool opens(int64_t batch);

  // FastRL's gate closes.
  void begin_rollout() { low_steps_ = 0; }

  // No speculation is an arm like the others.
  bool is_learned() const { return kind_ == Kind::kLearned; }

  int64_t low_steps() const { return low_steps_; }
  void restore(int64_t low_steps) { low_steps_ = low_steps; }

  static constexpr int64_t kReleaseSteps = 10;

 private:
  enum class Kind { kLearned, kPaper, kRelease };

  const Kind kind_;
  const int64_t threshold_;
  int64_t low_steps_ = 0;  // at or below the threshold in a row; stays at kReleaseSteps
};

}  // namespace tlt::speculation
