// RunSummary: summarizes a run in a few lines of text: change of the score, gain from speculation
// and idle training, use of time, and commands to run next.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/report/before_after.h"
#include "run/report/metric_history.h"
#include "run/report/speedup.h"

namespace tlt::run {

// Facts that are not in the metrics.
struct RunFacts {
  std::string folder = {};
  // The program as typed on the command line: "build/tlt".
  std::string program = "tlt";
  std::string report = {};   // HTML file; empty: none
  std::string result = {};   // what the run made: <folder>/policy or <folder>/drafter
  std::string policy = {};   // policy to generate with; empty: none was written
  std::string drafter = {};  // draft model for it; empty: none
  bool has_drafter = false;  // the run folder has a draft model for `tlt export drafter`
  bool has_tensorboard = false;
  // Responses decoded with and without speculation, and those that were bit-identical.
  int64_t replayed = 0, equal = 0;
  std::vector<SpeedupRounds> speedup = {};
  std::optional<BeforeAfter> example = {};
};

// Returns a heading and indented lines; lines without data are left out.
std::vector<std::string> summarize(const MetricHistory& history, const RunFacts& facts);

// Path of this program: relative to the working directory if below it, else absolute.
std::string program_name();

}  // namespace tlt::run
