// What the trackers of a run (tracker/trackers.h) are sent.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "run/run_folder.h"
#include "run/run_options.h"
#include "tracker/trackers.h"

namespace tlt::run {

// The names of project and run, and all options with the version of tlt as configuration.
tracker::TrackedRun tracked_run(const RunOptions& options, const std::string& folder);

// "val/generations": kTableRows responses of a validation at equal distances, the same prompts in
// each.
inline constexpr size_t kTableRows = 8;
tracker::Table table_of(const DumpedStep& dumped, const tokenizer::Tokenizer& tokenizer);

}  // namespace tlt::run
