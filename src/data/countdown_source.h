// CountdownSource: generated problems of the embedded task, named like a file:
//
//   countdown:seed=1000,size=65536,four=0.1,top=12,heldout=false
//   countdown:seed=1,insight=0.4,patience=0.8,tries=2,width=2   (the last four: demonstrations)
//
// The problem at an index depends on the seed and the index only. Held-out problems (a sixteenth)
// are the default for validation and are never used elsewhere.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/random.h"
#include "data/countdown.h"

namespace tlt::data {

// The data source that selects the reward of the task.
inline constexpr std::string_view kCountdownDataSource = "tlt/countdown_trace";

struct CountdownSource {
  enum class Use { kProblems, kDemonstrations };
  struct Demonstration {
    CountdownProblem problem;
    std::string response;
  };
  // Two demonstrations of a problem: one finds the target, the other gives up.
  struct Preference {
    CountdownProblem problem;
    std::string chosen, rejected;
  };

  int64_t seed = 0;
  int64_t size = 65536;
  CountdownProblemOptions problems;
  DemonstratorOptions demonstrator;

  static bool is_named_by(std::string_view name) { return name.starts_with("countdown:"); }

  // InputError: an unknown key, or a value out of range.
  static CountdownSource parse(std::string_view name, bool is_held_out, Use use);

  CountdownProblem problem(int64_t index) const;

  // Each attempt has another problem and response.
  Demonstration demonstration(int64_t index, uint32_t attempt) const;

  // The same for a pair. nullopt: the demonstrations of this attempt are all right, or all wrong.
  std::optional<Preference> try_preference(int64_t index, uint32_t attempt) const;

 private:
  RandomStream stream(int64_t index, uint32_t attempt, uint32_t purpose) const;
};

}  // namespace tlt::data
