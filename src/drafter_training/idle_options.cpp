// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/idle_options.h"

#include "base/check.h"

namespace tlt::drafter_training {

// The comparisons are written such that NaN is rejected, too.
void IdleTrainOptions::check() const {
  const std::string where = "speculative.train.";
  TLT_CHECK_INPUT(trigger == "drift" || trigger == "interval", where, "trigger is '", trigger,
                  "'; use drift or interval");
  TLT_CHECK_INPUT(training_interval_steps >= 1, where, "training_interval_steps is ",
                  training_interval_steps, "; give at least 1");
  TLT_CHECK_INPUT(slice_milliseconds > 0 && slice_milliseconds <= 60000, where,
                  "slice_milliseconds is ", slice_milliseconds, "; give a number such as 50");
  TLT_CHECK_INPUT(step_tokens >= 16, where, "step_tokens is ", step_tokens, "; give at least 16");
  TLT_CHECK_INPUT(buffer_bytes >= 1, where, "buffer_bytes is ", buffer_bytes,
                  "; give a number of bytes such as 536870912");
  TLT_CHECK_INPUT(publish_margin >= 0, where, "publish_margin is ", publish_margin,
                  "; give a number of at least 0, such as 0.02");
  TLT_CHECK_INPUT(gap_share >= 0 && gap_share <= 1, where, "gap_share is ", gap_share,
                  "; give a number from 0 to 1");
  TLT_CHECK_INPUT(consolidate_below >= -1, where, "consolidate_below is ", consolidate_below,
                  "; give a number of responses such as 8, or 0, or -1");
  TLT_CHECK_INPUT(frozen_after_steps >= 0, where, "frozen_after_steps is ", frozen_after_steps,
                  "; give a number of steps such as 10, or 0");
}

}  // namespace tlt::drafter_training
