// CodeReward: 1 if the response's Python code passes the row's tests, else 0.
//
// The code is the last ```python block of the response, or the last ``` block. It runs in a sandbox
// (sandbox.h), in a process per test; expected outputs never enter the sandbox, and statements run
// in a process of the sandbox without the code. The tests are the row's ground truth:
//
//   {"inputs": ["1 2\n", …], "outputs": ["3\n", …]}          standard input and output, as in verl
//                                                            (TACO, APPS, CodeContests)
//   {"fn_name": "add", "inputs": [[1, 2], …], "outputs": [3, …]}   calls, also of class Solution
//   ["assert add(1, 2) == 3", …], {"assert_case": […]}       statements (MBPP)
//   any other text                                           Python statements, as one test
//
// Threading  score() from any thread; each thread has its own sandbox.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "reward/reward.h"
#include "sandbox/sandbox.h"

namespace tlt::reward {

class CodeReward : public Reward {
 public:
  // The tests of a response together have 90 % of `timeout_seconds` of CPU time, and 90 % of
  // wall_factor() times `timeout_seconds` of wall time, so that this class, not RewardPool, whose
  // clock started earlier, reports the score.
  CodeReward(const CodeOptions& options, double timeout_seconds);

  // extras: code_tests_passed, a share. Throws Error if it cannot start a sandbox.
  RewardResult score(const RewardInput& input) const override;

  // Also throws InputError if this machine has no sandbox.
  void check_row(const RewardInput& row) const override;

  void start() const override;  // InputError: no sandbox
  RewardNeeds needs() const override { return {.ground_truth = true}; }
  double wall_factor(std::string_view) const override { return sandbox::Sandbox::kWallFactor; }
  std::string name() const override { return options_.partial ? "code_partial" : "code"; }

 private:
  const CodeOptions options_;
  const double seconds_, test_seconds_;
  mutable std::once_flag checked_;
};

}  // namespace tlt::reward
