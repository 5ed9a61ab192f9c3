// find_checkpoint(): the checkpoint that all workers resume from.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cluster/comm.h"
#include "train/checkpoint.h"

namespace tlt::run {

// train::find_latest() of rank 0, which alone reads all files of checkpoints to check them; the
// others check that they have the same manifest in their `folder`. All workers together.
// `options`: not empty on rank 0: one within the step after it counts too, if it is of these options
// (train::find_within_step).
// InputError, on all: a worker has not, or all checkpoints are broken.
std::optional<train::CheckpointPlace> find_checkpoint(const std::string& folder,
                                                      cluster::Comm& comm,
                                                      const std::string& options = "");

}  // namespace tlt::run
