// Countdown: the embedded task: combine all numbers, each once, with + - * / to make a target.
//
// A prompt is "7,6,3:60<think>"; a response writes one operation per line, each with the state it
// starts from, and ends with "</think><answer>(7+3)*6</answer><eos>". This file has the problems,
// the targets that a state can reach, and demonstrations by an imperfect depth-first search, all
// from random streams.
//
// Not here   the reward (reward/countdown.h).
// Threading  pure functions; any thread.
//
//   RandomStream random(seed, {.prompt = 17});
//   const CountdownProblem problem = make_problem(random, {});
//   std::string text = problem.prompt() + demonstrate(random, problem, {});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"

namespace tlt::data {

// Largest intermediate result.
inline constexpr int kCountdownLimit = 99;

// Up to four numbers in a given order, each in 1..kCountdownLimit.
struct CountdownState {
  std::array<uint8_t, 4> numbers{};
  uint8_t size = 0;

  std::span<const uint8_t> values() const { return {numbers.data(), size}; }
};

// An operation on two numbers of a state: left >= right, 1 <= result <= kCountdownLimit.
struct CountdownStep {
  uint8_t left = 0;
  char operation = '+';
  uint8_t right = 0;
  uint8_t result = 0;
  CountdownState next;  // the result, then the other numbers in their order
};

// All operations that a state allows, pair by pair in the order + - * /.
std::vector<CountdownStep> countdown_steps(const CountdownState& state);

// All values that the numbers of a state, each used once, can make.
std::bitset<kCountdownLimit + 1> countdown_reach(const CountdownState& state);

struct CountdownProblem {
  CountdownState start;
  int target = 0;

  std::string prompt() const;        // "7,6,3:60<think>"
  std::string ground_truth() const;  // "7,6,3:60"

  // Whether the problem is held out: a sixteenth of all problems are, by a hash of the sorted
  // numbers and the target.
  bool is_held_out() const;
};

struct CountdownProblemOptions {
  double four_share = 0.1;  // problems with four numbers; the others have three
  int largest = 12;         // numbers are uniform in 1..largest
  bool is_held_out = false;
};

// A solvable problem with a target >= 10, uniform among the targets that its numbers can make.
CountdownProblem make_problem(RandomStream& random, const CountdownProblemOptions& options);

struct DemonstratorOptions {
  double insight = 0.5;    // probability of trying a way that leads to the target first
  double patience = 0.85;  // probability of continuing after a failed pair
  int tries = 2;           // maximum number of lines at a pair that cannot make the target
  int width = 2;           // number of ways tried below the root
};

// A response: the search as text. Its answer uses every number once; it is wrong if the search gave
// up.
std::string demonstrate(RandomStream& random, const CountdownProblem& problem,
                        const DemonstratorOptions& options);

// Whether the search of such a response found the target, so that its answer is right.
bool reaches_target(const CountdownProblem& problem, const std::string& response);

}  // namespace tlt::data
