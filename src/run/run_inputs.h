// Fingerprints of the files that a run reads. Workers compare them, so that a host with other files
// is refused before the first step.
//
// Covers     the model's folder (without weights if rank 0 sends them), that of the draft model in
//            use, that of speculative.train.init and a teacher (model/fingerprint.h); an adapter, each data
//            file, a chat template's file, the judge's prompt, and the files that reward.command
//            names (64 blocks of each).
// Not        files that only the reward's own program reads, such as Python modules.
// Threading  pure function.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cluster/comm.h"
#include "run/run_options.h"

namespace tlt::run {

// InputError: the model's or the draft model's folder cannot be read.
std::vector<cluster::Input> fingerprint_inputs(const RunOptions& options);

}  // namespace tlt::run
