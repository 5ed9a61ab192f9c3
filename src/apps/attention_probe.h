// What attention alone costs in an RL step of a shape: the part of it that grows with the square of
// a response's length. Measured on buffers of zeros, one layer at a time.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/rl_step.h"

namespace tlt::apps {

struct AttentionSeconds {
  double rollout = 0;  // decoding, `running` responses at a time; a prompt's chunks are not counted
  double train = 0;    // forward and backward
};

AttentionSeconds attention_seconds(const model::PolicyModel& policy, const StepShape& shape,
                                   int64_t running, const Clock& clock);

}  // namespace tlt::apps
