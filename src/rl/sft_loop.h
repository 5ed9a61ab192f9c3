// `tlt sft`: supervised fine-tuning, the warm-up before RL, with its trainer: run() in sft_loop.cpp
// is the place to begin reading.
//
//   examples -> Trainer (mean negative log-likelihood of the responses) -> <run folder>/policy
//
// Checkpoints, resume and exit codes are those of tlt train (run.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cluster/launch.h"
#include "rl/run_options.h"

namespace tlt::rl {

// Runs a worker to the end of the run, or to the step in which an interrupt came. The policy is in
// <run folder>/policy then. Returns the exit code.
int sft(const RunOptions& options, const cluster::Launch& launch);

}  // namespace tlt::rl
