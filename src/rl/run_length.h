// RunLength: how many steps a run has.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "data/sampler.h"
#include "rl/run_options.h"

namespace tlt::rl {

// trainer.total_training_steps, or trainer.total_epochs of whole batches.
int64_t count_steps(const RunControlOptions& options, const data::Sampler& sampler, int64_t batch);

// Of batches of data.train_batch_size. (With dynamic sampling the rows are used more often, the
// number of steps is the same.) InputError: an epoch has fewer rows than a batch; `left_out` rows
// were too long.
int64_t count_data_steps(const RunOptions& options, const data::Sampler& sampler, int64_t left_out);

}  // namespace tlt::rl
