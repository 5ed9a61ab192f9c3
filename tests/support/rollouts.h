// Helpers for tests of the engine: requests, running them, and describing differences of results.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "rollout/engine.h"

namespace tlt::tests {

// By prompt id and sample.
using Rollouts = std::map<std::pair<uint32_t, uint32_t>, rollout::Response>;

inline std::vector<int32_t> random_tokens(uint64_t seed, uint32_t prompt_id, int64_t length,
                                          int64_t vocabulary) {
  RandomStream random(seed, {.prompt = prompt_id});
  std::vector<int32_t> tokens;
  while (std::ssize(tokens) < length)
    tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary))));
  return tokens;
}

inline void keep(std::vector<rollout::Response> responses, Rollouts& rollouts) {
  for (rollout::Response& response : responses)
    rollouts[{response.prompt_id, response.sample}] = std::move(response);
}

inline Rollouts run(rollout::Engine& engine, const std::vector<rollout::Group>& groups) {
  Rollouts rollouts;
  for (const rollout::Group& group : groups) engine.submit(group);
  while (engine.step()) keep(engine.take_finished(), rollouts);
  keep(engine.take_finished(), rollouts);
  engine.check_idle_invariants();
  return rollouts;
}

// The same groups, split into groups of one sample.
inline std::vector<rollout::Group> split_up(const std::vector<rollout::Group>& groups) {
  std::vector<rollout::Group> single;
  for (const rollout::Group& group : groups) {
    for (int64_t i = 0; i < group.samples; ++i) {
      single.push_back(group);
      single.back().samples = 1;
      single.back().first_sample = group.first_sample + i;
    }
  }
  return single;
}

namespace rollouts_internal {

// The first index at which they differ bitwise; -1: none.
template <class T>
int64_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) return static_cast<int64_t>(i);
  return a.size() == b.size() ? -1 : static_cast<int64_t>(std::min(a.size(), b.size()));
}

}  // namespace rollouts_internal

// Describes the first difference of two results; empty when they are bit-identical.
inline std::string difference(const Rollouts& a, const Rollouts& b) {
  using rollouts_internal::first_difference;
  std::ostringstream out;
  if (a.size() != b.size()) out << a.size() << " and " << b.size() << " responses";
  for (const auto& [place, left] : a) {
    if (!out.str().empty()) break;
    const auto found = b.find(place);
    const auto name = [&] {
      return "prompt " + std::to_string(place.first) + ", sample " + std::to_string(place.second);
    };
    if (found == b.end()) {
      out << name() << " is missing";
      break;
    }
    const rollout::Response& right = found->second;
    if (const int64_t i = first_difference(left.tokens, right.tokens); i >= 0)
      out << name() << ": token " << i;
    else if (const int64_t j = first_difference(left.logprobs, right.logprobs); j >= 0)
      out << name() << ": logprob " << j;
    else if (const int64_t k = first_difference(left.entropies, right.entropies); k >= 0)
      out << name() << ": entropy " << k;
    else if (left.finish != right.finish || left.target_forwards != right.target_forwards)
      out << name() << ": finish or forwards";
  }
  return out.str();
}

}  // namespace tlt::tests
