// Replay: decodes responses with and without speculation at the end of a run, to check that they
// are identical and to measure the speedup.
//
// Owns       a second engine without speculation.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "rollout/engine.h"
#include "run/report/speedup.h"

namespace tlt::rl {

// Result of decoding the same responses with and without speculation.
struct Replay {
  int64_t responses = 0;
  int64_t equal = 0;  // responses with the same tokens, and bit-identical logprobs and entropies
  std::vector<run::SpeedupRounds> speedup = {};
};

class ReplayEngines {
 public:
  // The engine without speculation, which gets memory for the groups.
  struct Baseline {
    const rollout::TargetModel& target;
    const rollout::EngineOptions& options;
    const rollout::StopString* stop_string = nullptr;
  };
  // Borrows all arguments but `groups`. `speculation` is that of `engine`. REQUIRES: the engine is
  // idle; prompt ids are distinct.
  ReplayEngines(rollout::Engine& engine, const rollout::Speculation& speculation,
                const Baseline& baseline, std::vector<rollout::Group> groups);

  // Decodes each group to the end, in two rounds with different uniforms.
  Replay compare();

  // Measures interleaved rounds of both engines at 1, 2, 4, 8 … running sequences, up to the number
  // of groups and what the engines run, for about `seconds`. Each round uses other prompts of `pool`.
  std::vector<run::SpeedupRounds> measure(const std::vector<rollout::Group>& pool, double seconds);

 private:
  struct DecodeTime;
  std::vector<rollout::Response> decode(rollout::Engine& engine,
                                        const std::vector<rollout::Group>& groups) const;
  DecodeTime run(rollout::Engine& engine, const std::vector<rollout::Group>& groups) const;
  std::vector<rollout::Group> next_round(const std::vector<rollout::Group>& pool, int64_t sequences,
                                         int64_t tokens);
  run::SpeedupRounds measure_size(const std::vector<rollout::Group>& pool, int64_t sequences,
                                  double seconds);

  rollout::Engine& engine_;
  const rollout::Speculation& speculation_;
  const std::vector<rollout::Group> groups_;
  const int64_t most_sequences_;
  rollout::Engine baseline_;  // without speculation
  uint32_t round_ = 0;        // rounds done; each has its own uniforms
};

}  // namespace tlt::rl
