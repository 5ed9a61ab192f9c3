// Rollout: a response with its score, in the form in which workers exchange it.
//
// Threading  plain data; pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reward/reward.h"
#include "rollout/request.h"

namespace tlt::run {

struct Rollout {
  uint32_t prompt = 0;  // index into the step's prompts
  rollout::Response response;
  // Tokens of the prompt that an environment gave in place of the row's; empty: it gave none.
  std::vector<int32_t> own_prompt;
  std::optional<reward::EpisodeOutcome> episode;  // of an environment; none without one
  double finish_seconds = 0;  // from the start of the rollouts to its last token
  bool is_scored = false;     // score, extras and fault are set
  double score = 0;
  std::map<std::string, double> extras;  // further columns of the dump
  std::string answer;                    // as its reward read it; empty: none
  std::string fault;                     // why its reward failed or timed out; empty: scored
};

// Serialization between workers. unpack() throws Error if the bytes are not from pack().
std::string pack(const std::vector<Rollout>& rollouts);
std::vector<Rollout> unpack(std::string_view bytes);

}  // namespace tlt::run
