// RunLength: how many steps a run has, and what it says where it ends; the same for tlt train, sft
// and draft.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "data/sampler.h"
#include "rl/run_options.h"
#include "rl/workplace.h"

namespace tlt::rl {

// trainer.total_training_steps, or trainer.total_epochs of whole batches of data.train_batch_size.
// (With dynamic sampling the rows are used more often, the number of steps is the same.)
// InputError: an epoch has fewer rows than a batch; `left_out` rows were too long.
int64_t count_steps(const RunOptions& options, const data::Sampler& sampler, int64_t left_out);

// Says, on rank 0, that nothing is left to do.
void log_complete(const Workplace& place, int64_t step, int64_t total_steps);

// Says, on rank 0, that the run was interrupted and how to resume it. Returns the exit code, 130 or
// 143. REQUIRES: place.anyone_interrupted() was the reason.
int report_stop(const Workplace& place, int64_t step, int64_t total_steps);

}  // namespace tlt::rl
