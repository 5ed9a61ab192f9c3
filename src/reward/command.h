// CommandReward: the score of a program that the user provides.
//
// The program reads one JSON object per line,
//   {"id", "data_source", "prompt", "messages", "response", "response_ids", "ground_truth",
//    "extra_info", "truncated"}
// and writes one line for each: a number, or an object with `score` and further numbers, which the
// rollout dump shows; {"error": "why"} fails the sample. Missing fields of a row are null. An
// object that repeats the `id` cannot be mistaken for the answer to another response.
// The program runs once per scoring thread, the first one from start() on, and is kept; its input
// ends with the run. A program that exits, hangs, writes too much or writes invalid lines fails one
// sample, with an error that says what happened and quotes its standard error, and is restarted for
// the next sample. tools/verl_reward.py and tools/trl_reward.py are such programs, for reward
// functions with the signatures of verl and TRL.
//
// Threading  score() from any thread; a mutex protects the free processes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "reward/reward.h"
#include "sandbox/child_process.h"

namespace tlt::reward {

class CommandReward : public Reward {
 public:
  // `command` is for the shell. It has 90 % of `timeout_seconds` for an answer, so that this class,
  // not RewardPool, whose clock started earlier, reports the error.
  CommandReward(std::string command, double timeout_seconds);

  RewardResult score(const RewardInput& input) const override;
  // Starts the program and has it score an empty response. InputError: it exited, or the time for
  // an answer was over, before it read the request. Its answer is ignored.
  void start() const override;
  void check_row(const RewardInput&) const override {}
  RewardNeeds needs() const override { return {}; }
  std::string name() const override { return "command"; }

 private:
  // A running program, with its answer to a request.
  struct Answer {
    std::unique_ptr<sandbox::ChildProcess> child;
    sandbox::ChildProcess::Outcome outcome;
    std::string line;
    int64_t id;
  };
  Answer ask(const RewardInput& input) const;
  std::unique_ptr<sandbox::ChildProcess> take_child() const;
  void put_back(std::unique_ptr<sandbox::ChildProcess> child) const;
  std::string what_happened(sandbox::ChildProcess& child,
                            sandbox::ChildProcess::Outcome outcome) const;
  // Describes the program's error, with the end of its standard error; ends the program.
  std::string fault(sandbox::ChildProcess& child, const std::string& what) const;

  const std::string command_;
  const double answer_seconds_;
  mutable std::atomic<int64_t> last_id_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<sandbox::ChildProcess>> free_;  // guarded by mutex_
};

}  // namespace tlt::reward
