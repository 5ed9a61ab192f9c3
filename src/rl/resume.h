// Resume: the checkpoint that a run goes on from, the same for all workers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cluster/comm.h"
#include "rl/loop_state.h"
#include "rl/run_options.h"
#include "train/checkpoint.h"

namespace tlt::rl {

// Of the options that a resumed run must share: all that change results but how long it goes on.
std::string resume_digest(const RunOptions& options);

struct ResumePoint {
  train::CheckpointPlace place;
  SavedState saved;
};

// The last whole checkpoint of the run folder; nullopt: there is none, or resume_mode is disable.
// InputError when the workers see different ones, or when it is that of a run with other options.
// All workers call it together.
std::optional<ResumePoint> find_resume_point(const RunOptions& options,
                                             const std::string& run_folder,
                                             const std::string& checkpoints, cluster::Comm& comm);

}  // namespace tlt::rl
