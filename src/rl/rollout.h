// Rollout: a response with its score, as all workers get to know it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rollout/request.h"

namespace tlt::rl {

struct Rollout {
  uint32_t prompt = 0;  // index in the step's prompts
  rollout::Response response;
  double score = 0;
  std::map<std::string, double> extras;  // further columns of the dump
  std::string fault;                     // why its reward failed or was late; empty: it was scored
};

// For the way to the other workers. unpack() throws Error where the bytes are not what pack() gave.
std::string pack(const std::vector<Rollout>& rollouts);
std::vector<Rollout> unpack(std::string_view bytes);

}  // namespace tlt::rl
