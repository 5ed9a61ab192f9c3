// Countdown: combine given numbers, each once, to make a target. Two rewards, for two answer
// formats.
//
// The numbers and the target are the ground truth, as `3,4,6:24` or as JSON `{"numbers": [3, 4, 6],
// "target": 24}`; if it is empty, extra_info has that object.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reward/reward.h"

namespace tlt::reward {

struct CountdownTask {
  std::vector<int64_t> numbers = {};  // sorted
  int64_t target = 0;
};

// Throws InputError if the row has no problem.
CountdownTask countdown_task(const RewardInput& row);

// Whether `text` has exactly the problem's numbers, each once, and the exact value of the target.
bool solves(const CountdownTask& problem, std::string_view text);

// TinyZero's: the last `<answer>` of the last line; 1 if it solves the problem, 0.1 if it does not,
// 0 if there is none. TinyZero's eval() also accepts `**`, `//` and decimals; here
// they solve nothing, because `9**9**9` hangs and `1.5` passes for the numbers 1 and 5.
class CountdownReward : public Reward {
 public:
  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override { countdown_task(row); }
  RewardNeeds needs() const override { return {}; }  // extra_info may have the problem
  std::string name() const override { return "countdown"; }
};

// The demo's: 1 if the raw response ends in `</think><answer>EXPRESSION</answer><eos>`, has no
// other `<answer>` and the expression, without blanks, solves the problem; else 0, also for a
// truncated response.
class CountdownTraceReward : public Reward {
 public:
  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override { countdown_task(row); }
  RewardNeeds needs() const override { return {}; }  // extra_info may have the problem
  std::string name() const override { return "countdown_trace"; }
};

}  // namespace tlt::reward
