// Countdown: the embedded task. Combine all numbers, each once, with + - * / to make a target.
//
// A prompt is "7,6,3:60<think>"; a response writes one operation a line, each with the state it
// starts from, and ends "</think><answer>(7+3)*6</answer><eos>". Here: problems, which targets a
// state can reach, and demonstrations by a fallible depth-first search, all from random streams.
//
// Not here   the reward (reward/countdown.h); the tokens (countdown_tokenizer.h).
// Threading  functions of their arguments; any thread.
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

// No value on the way is above this.
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

// Every operation that a state allows, pair by pair in the order + - * /.
std::vector<CountdownStep> countdown_steps(const CountdownState& state);

// Every value that the numbers of a state, all of them used, can make.
std::bitset<kCountdownLimit + 1> countdown_reach(const CountdownState& state);

struct CountdownProblem {
  CountdownState start;
  int target = 0;

  std::string prompt() const;        // "7,6,3:60<think>"
  std::string ground_truth() const;  // "7,6,3:60"

  // A sixteenth of all problems, by a hash of the sorted numbers and the target.
  bool is_held_out() const;
};

struct CountdownProblemOptions {
  double four_share = 0.1;  // problems with four numbers; the others have three
  int largest = 12;         // numbers are uniform in 1..largest
  bool is_held_out = false;
};

// A solvable problem with a target >= 10, uniform among those that its numbers can make.
CountdownProblem make_problem(RandomStream& random, const CountdownProblemOptions& options);

struct DemonstratorOptions {
  double insight = 0.5;    // chance to try a way that leads to the target first
  double patience = 0.85;  // chance to go on after a failed pair
  int tries = 2;           // most lines at a pair that cannot make the target
  int width = 2;           // ways tried below the root
};

// A response: the search as text. Its answer uses every number once; it is wrong where the search
// gave up.
std::string demonstrate(RandomStream& random, const CountdownProblem& problem,
                        const DemonstratorOptions& options);

}  // namespace tlt::data
