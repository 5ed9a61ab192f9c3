// `tlt sft`: supervised fine-tuning, as a warm-up before RL and with its trainer. Start reading at
// ExampleLoop::run() in example_loop.cpp.
//
//   examples -> Trainer (mean negative log-likelihood of the responses, and their divergence from a
//               teacher's distributions if there is one) -> <run folder>/policy
//
// Checkpoints, resume and exit codes are the same as in tlt train (run.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cluster/launch.h"
#include "run/run_options.h"

namespace tlt::warmup {

// Runs a worker to the end of the run, or to the end of the step in which it was interrupted, and
// writes the policy to <run folder>/policy. Returns the exit code.
int sft(const run::RunOptions& options, const cluster::Launch& launch);

}  // namespace tlt::warmup
