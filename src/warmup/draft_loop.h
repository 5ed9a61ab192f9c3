// `tlt draft`: warm-up of an EAGLE draft model before the first rollout (docs/draft.md). Start
// reading at run() in draft_loop.cpp.
//
//   prompts or rows -> hidden states on disk (drafter_training/hidden_store) -> a share held out
//     -> DraftTrainer -> <run folder>/drafter
//
// Each worker computes its share of the hidden states and of the packs; hidden states and draft
// model are bit-identical for any number of workers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cluster/launch.h"
#include "run/run_options.h"

namespace tlt::warmup {

// Runs a worker to the end of the run, or to the end of the step in which it was interrupted; the
// same command resumes from there. Returns the exit code.
int draft(const run::RunOptions& options, const cluster::Launch& launch);

}  // namespace tlt::warmup
