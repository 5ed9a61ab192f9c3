// RunLength: computes the number of steps of a run from its options and data.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "data/sampler.h"
#include "run/run_options.h"

namespace tlt::run {

// trainer.total_training_steps, or the full batches of trainer.total_epochs epochs.
int64_t count_steps(const RunControlOptions& options, const data::Sampler& sampler, int64_t batch);

// The same for batches of data.train_batch_size. Dynamic sampling uses rows more often but does not
// change the number of steps. InputError: an epoch has fewer rows than a batch; the message names
// `left_out`, the number of rows that were too long.
int64_t count_data_steps(const RunOptions& options, const data::Sampler& sampler, int64_t left_out);

}  // namespace tlt::run
