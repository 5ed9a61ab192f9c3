// `tlt dpo`: training on pairs of responses of which one is preferred (DPO and its variants), with
// the trainer of tlt train and the loop of tlt sft (example_loop.h). Start reading at DpoObjective
// in dpo_loop.cpp.
//
//   pairs -> ReferenceLogprobs, once -> Trainer (preference_loss.h) -> <run folder>/policy
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cluster/launch.h"
#include "run/run_options.h"

namespace tlt::warmup {

// Runs a worker to the end of the run, or to the end of the step in which it was interrupted, and
// writes the policy to <run folder>/policy. Returns the exit code.
int dpo(const run::RunOptions& options, const cluster::Launch& launch);

}  // namespace tlt::warmup
