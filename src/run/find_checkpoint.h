// find_checkpoint(): the checkpoint that all workers resume from.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cluster/comm.h"
#include "train/checkpoint.h"

namespace tlt::run {

// Which checkpoints within a step a run can use; only that of rank 0 is used.
struct WithinStep {
  std::string options = {};
  int64_t total_steps = 0;  // 0: none
};

// train::find_latest() of rank 0, which alone reads all files of checkpoints to check them; the
// others check that they have the same manifest in their `folder`. All workers together.
// A checkpoint within the step after it counts too, if it is as `within` says
// (train::find_within_step).
// InputError, on all: a worker has not, or all checkpoints are broken.
std::optional<train::CheckpointPlace> find_checkpoint(const std::string& folder,
                                                      cluster::Comm& comm,
                                                      const WithinStep& within = {});

}  // namespace tlt::run
