// Fingerprints of what a run reads, so that workers with other contents under the same names are told
// apart before the first step.
//
// Covers     the model's folder and a draft model's (model/fingerprint.h), an adapter, and 64 blocks of
//            each data file and of a chat template's file.
// Not        files that only the reward's own program reads.
// Threading  pure function.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cluster/comm.h"
#include "run/run_options.h"

namespace tlt::run {

// InputError: a file cannot be read.
std::vector<cluster::Input> fingerprint_inputs(const RunOptions& options);

}  // namespace tlt::run
