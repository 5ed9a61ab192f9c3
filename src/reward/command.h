// CommandReward: the score that a program of the user's own gives.
//
// The program reads one JSON object a line,
//   {"id", "data_source", "prompt", "messages", "response", "response_ids", "ground_truth",
//    "extra_info", "truncated"}
// and writes one line for each: a number, or an object with `score` and further numbers, which the
// rollout dump shows; {"error": "why"} costs the sample its score. What a row lacks is null. An
// object that repeats the `id` cannot be taken for the answer to another response.
// The program runs once for each thread that scores, the first one from start() on, and is kept;
// its input ends when the run does. A program that dies, hangs, floods or talks nonsense costs one
// sample its score, with a sentence that says what happened and what it wrote to its standard
// error, and is started again for the next one. tools/verl_reward.py and tools/trl_reward.py are
// such programs, for reward functions with the signatures of verl and TRL.
//
// Threading  score() from any thread; the processes that are free are under a mutex.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "reward/child_process.h"
#include "reward/reward.h"

namespace tlt::reward {

// A score beyond is a mistake of the program, which advantages would not survive.
inline constexpr double kMaxScore = 1e9;

class CommandReward : public Reward {
 public:
  // `command` is for the shell. An answer is waited for `timeout_seconds` less a tenth, so that the
  // sentence comes from here and not from RewardPool, whose clock began to run earlier.
  CommandReward(std::string command, double timeout_seconds);

  RewardResult score(const RewardInput& input) const override;
  // Starts the program and has it score an empty response. InputError: it ended, or the time for an
  // answer was over, before it read that. What it answers does not matter.
  void start() const override;
  void check_row(const RewardInput&) const override {}
  RewardNeeds needs() const override { return {}; }
  std::string name() const override { return "command"; }

 private:
  // One that is running, with its answer to a request.
  struct Answer {
    std::unique_ptr<ChildProcess> child;
    ChildProcess::Outcome outcome;
    std::string line;
    int64_t id;
  };
  Answer ask(const RewardInput& input) const;
  std::unique_ptr<ChildProcess> take_child() const;
  void give_back(std::unique_ptr<ChildProcess> child) const;
  std::string what_happened(ChildProcess& child, ChildProcess::Outcome outcome) const;
  // What the program did wrong, with how its standard error ended; ends it.
  std::string fault(ChildProcess& child, const std::string& what) const;

  const std::string command_;
  const double answer_seconds_;
  mutable std::atomic<int64_t> last_id_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<ChildProcess>> free_;  // guarded by mutex_
};

}  // namespace tlt::reward
