// HttpReward: the score of a reward server, as OpenRLHF's --remote_rm_url calls it.
//
// A response is one request: POST of
//   {"query": [prompt + response], "prompts": [prompt], "labels": [ground truth, or ""]}
// and the answer is
//   {"rewards": [number]}
// with the further numbers of "scores" and "extra_logs", if any, as columns of the rollout dump. A
// server that is down, slow or answers anything else fails one sample, with an error that says what
// happened. Several servers take turns, and stand in for each other.
//
// Threading  score() from any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "reward/remote/http_client.h"
#include "reward/reward.h"

namespace tlt::reward {

class HttpReward : public Reward {
 public:
  // An answer has 90 % of `timeout_seconds`, retries included, so that this class, not RewardPool,
  // whose clock started earlier, reports the error.
  HttpReward(const std::vector<std::string>& urls, double timeout_seconds);

  RewardResult score(const RewardInput& input) const override;
  // InputError: a server does not answer. No sample is scored.
  void start() const override;
  void check_row(const RewardInput&) const override {}
  RewardNeeds needs() const override { return {}; }
  std::string name() const override { return "http"; }

 private:
  std::vector<HttpUrl> urls_;
  const double answer_seconds_;
  mutable std::atomic<size_t> turn_ = 0;
};

}  // namespace tlt::reward
