// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/idle_options.h"

#include "base/check.h"

namespace tlt::drafter_training {

// The comparisons are written such that NaN is rejected, too.
void IdleTrainOptions::check() const {
  const std::string where = "speculative.train.";
  TLT_CHECK_INPUT(training_interval_steps >= 0, where, "training_interval_steps is ",
                  training_interval_steps, "; give a number of steps such as 10, or 0");
  TLT_CHECK_INPUT(step_tokens >= 16, where, "step_tokens is ", step_tokens, "; give at least 16");
  TLT_CHECK_INPUT(gap_share >= 0 && gap_share <= 1, where, "gap_share is ", gap_share,
                  "; give a number from 0 to 1");
  TLT_CHECK_INPUT(consolidate_below >= -1, where, "consolidate_below is ", consolidate_below,
                  "; give a number of responses such as 8, or 0, or -1");
  TLT_CHECK_INPUT(frozen_after_steps >= -1, where, "frozen_after_steps is ", frozen_after_steps,
                  "; give a number of steps such as 10, or -1");
}

}  // namespace tlt::drafter_training
