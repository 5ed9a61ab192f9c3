// RunSummary: what a run has done, in a few lines for a person: how the score moved, what the draft
// model and idle workers gave, where the time went, and what to type next.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rl/before_after.h"
#include "rl/metric_history.h"
#include "rl/speedup.h"

namespace tlt::rl {

// What the metrics do not say.
struct RunFacts {
  std::string folder = {};
  // How the program was started, as it is typed: "build/tlt".
  std::string program = "tlt";
  std::string result = {};   // what was made: <folder>/policy, <folder>/drafter
  std::string policy = {};   // to generate with; empty: none was written
  std::string drafter = {};  // to draft for it; empty: none
  bool has_drafter = false;  // that `tlt export drafter` would take from the run's folder
  bool has_tensorboard = false;
  // Responses decoded with speculation and without, and those with the same bits.
  int64_t replayed = 0, equal = 0;
  std::vector<SpeedupRounds> speedup = {};
  std::optional<BeforeAfter> example = {};
};

// The lines, indented below a heading; those of which nothing is known are left out.
std::vector<std::string> summarize(const MetricHistory& history, const RunFacts& facts);

// The program as this process was started: relative to the working directory where it lies below.
std::string program_name();

}  // namespace tlt::rl
