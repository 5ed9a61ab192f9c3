// `tlt draft`: warm-up of an EAGLE drafter before the first rollout (docs/draft.md). run() is the
// place to begin reading.
//
//   prompts or rows -> hidden states on the disk (spot/hidden_store) -> a share held out
//     -> DraftTrainer -> <run folder>/drafter
//
// Every worker makes its share of the states and computes its share of the packs; states and
// drafter are the same bits for any number of workers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cluster/launch.h"
#include "rl/run_options.h"

namespace tlt::rl {

// Runs a worker to the end of the run, or to the step in which an interrupt came: the same command
// goes on from there. Returns the exit code.
int draft(const RunOptions& options, const cluster::Launch& launch);

}  // namespace tlt::rl
