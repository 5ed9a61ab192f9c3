// Rewards by string comparison: ExactReward, RegexReward and FormatReward.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "reward/reward.h"

namespace tlt::reward {

// 1 if response and ground truth are equal except for white space at the ends, else 0.
class ExactReward : public Reward {
 public:
  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override { return {.ground_truth = true}; }
  std::string name() const override { return "exact"; }
};

// A PCRE2 pattern (UTF-8; `\A … \z` anchors both ends, `(?s).*` in front finds the last match). A
// search that exceeds a limit throws Error, so that a pattern with endless backtracking costs
// milliseconds, not the run.
class Pattern {
 public:
  struct Match {
    std::optional<std::string_view> group;  // first group, if it took part; views the text
  };

  // Throws InputError, naming the option, if the pattern does not compile.
  Pattern(const std::string& option, const std::string& pattern);
  ~Pattern();

  bool has_group() const;
  // The first match; nullopt: none.
  std::optional<Match> try_find(std::string_view text) const;

 private:
  struct Compiled;
  const std::string option_;
  const std::unique_ptr<const Compiled> compiled_;
};

// Searches the response for the pattern. Without a group a match scores 1; with one, the first
// group must equal the ground truth except for white space at the ends.
class RegexReward : public Reward {
 public:
  explicit RegexReward(const std::string& pattern) : pattern_("reward.regex", pattern) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override { return {.ground_truth = pattern_.has_group()}; }
  std::string name() const override { return "regex"; }

 private:
  const Pattern pattern_;
};

// 1 if the response matches the pattern, with or without groups, else 0: to be added to a reward of
// the answer.
class FormatReward : public Reward {
 public:
  explicit FormatReward(const std::string& pattern) : pattern_("reward.format", pattern) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput&) const override {}
  RewardNeeds needs() const override { return {}; }
  std::string name() const override { return "format"; }

 private:
  const Pattern pattern_;
};

}  // namespace tlt::reward
