// Measures the time of attention alone in an RL step of a given shape: the part that grows with the
// square of the response length. Runs one layer on buffers of zeros.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/rl_step.h"

namespace tlt::bench {

struct AttentionSeconds {
  double rollout = 0;  // decoding, `running` responses at a time; without prefill
  double train = 0;    // forward and backward
};

AttentionSeconds attention_seconds(const model::PolicyModel& policy, const StepShape& shape,
                                   int64_t running, const Clock& clock);

}  // namespace tlt::bench
