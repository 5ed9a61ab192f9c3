// RunSummary: what a run has done, in a few lines for a person: how the score moved, that guesses
// changed no token, what they gave, and where the idle time went.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rollout/engine.h"

namespace tlt::rl {

// The same responses decoded with guesses and without.
struct Replay {
  int64_t responses = 0;
  int64_t equal = 0;  // in every token and every bit of the logprobs
  double speculative_seconds = 0, plain_seconds = 0;
};

// `engine` speculates; a plain one is made beside it. REQUIRES: the engine is idle, prompt ids
// differ.
Replay replay(rollout::Engine& engine, const model::PolicyModel& model,
              const rollout::EngineOptions& options, const rollout::StopText* stop_text,
              const std::vector<rollout::Group>& groups);

// Lines from the run's metrics.jsonl; those of which nothing is known are left out. Throws
// InputError when the file cannot be read.
std::vector<std::string> summarize(const std::string& metrics_file,
                                   const std::optional<Replay>& replayed);

}  // namespace tlt::rl
