// `tlt sft`: learns to imitate responses, with the trainer of RL: the warm-up before it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cluster/launch.h"
#include "rl/run_options.h"

namespace tlt::rl {

// Runs a worker to the end of the run; the model is in <run folder>/policy. Returns the exit code.
int sft(const RunOptions& options, const cluster::Launch& launch);

}  // namespace tlt::rl
