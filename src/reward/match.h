// Rewards that compare text: ExactReward and RegexReward.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "reward/reward.h"

namespace tlt::reward {

// 1 if response and ground truth are the same but for white space at the ends, else 0.
class ExactReward : public Reward {
 public:
  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  std::string name() const override { return "exact"; }
};

// Searches the response for the first match of a PCRE2 pattern (UTF-8; `\A … \z` pins the ends,
// `(?s).*` in front finds the last match). Without a group a match scores 1; with one, the first
// group must equal the ground truth but for white space at the ends. Throws Error when the search
// runs into a limit, so that a pattern which backtracks without end costs milliseconds, not the
// run.
class RegexReward : public Reward {
 public:
  // Throws InputError if the pattern does not compile.
  explicit RegexReward(const std::string& pattern);
  ~RegexReward() override;

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  std::string name() const override { return "regex"; }

 private:
  struct Compiled;
  const std::unique_ptr<const Compiled> compiled_;
};

}  // namespace tlt::reward
