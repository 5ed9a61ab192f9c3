// Replay: decodes responses at the end of a run with and without speculation: that the tokens are
// the same, and how much faster it is.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "rl/speedup.h"
#include "rollout/engine.h"

namespace tlt::rl {

// The same responses decoded with speculation and without.
struct Replay {
  int64_t responses = 0;
  int64_t equal = 0;  // in every token and every bit of the logprobs
  std::vector<SpeedupRounds> speedup = {};
};

class ReplayEngines {
 public:
  // Borrows all: `speculation` is that of `engine`. A plain engine is made for `groups`.
  // REQUIRES: the engine is idle; prompt ids differ.
  ReplayEngines(rollout::Engine& engine, const rollout::Speculation& speculation,
                const model::PolicyModel& model, const rollout::EngineOptions& options,
                const rollout::StopString* stop_text, std::vector<rollout::Group> groups);

  // Whole responses, each group twice with other random numbers.
  Replay compare();

  // Rounds of both engines in turn at 1, 2, 4, 8 … running sequences, up to the number of groups,
  // until they have taken about `seconds`. Each round takes other prompts of `pool`.
  std::vector<SpeedupRounds> measure(const std::vector<rollout::Group>& pool, double seconds);

 private:
  struct Pace;
  std::vector<rollout::Response> decode(rollout::Engine& engine,
                                        const std::vector<rollout::Group>& groups) const;
  Pace run(rollout::Engine& engine, const std::vector<rollout::Group>& groups) const;
  std::vector<rollout::Group> next_round(const std::vector<rollout::Group>& pool, int64_t sequences,
                                         int64_t tokens);
  SpeedupRounds measure_size(const std::vector<rollout::Group>& pool, int64_t sequences,
                             double seconds);

  rollout::Engine& engine_;
  const rollout::Speculation& speculation_;
  const std::vector<rollout::Group> groups_;
  rollout::Engine plain_;
  uint32_t round_ = 0;  // so far, each with random numbers of its own
};

}  // namespace tlt::rl
