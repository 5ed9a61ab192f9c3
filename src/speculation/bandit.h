// BegBandit: BEG-MAB, TLT's bucketed epsilon-greedy bandit over strategies (docs/paper_map.md).
//
// Strategies are grouped by the tokens they verify, and each range of batch sizes has one group:
// the more sequences, the fewer tokens. Within the group the arm with the highest median reward of
// the last `mab_window` steps is chosen, or with probability epsilon any; an arm without rewards
// comes first. Above `bs_threshold` sequences the arm is `off`.
//
// Owns       the last rewards of every arm.
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "speculation/speculation_options.h"
#include "speculation/tuning_policy.h"

namespace tlt::speculation {

// The last `window` numbers.
class RecentNumbers {
 public:
  void add(double number, size_t window);
  void keep_newest(size_t count);
  bool empty() const { return numbers_.empty(); }

  // Of an even count, the mean of the two in the middle. REQUIRES: not empty.
  double median(std::vector<double>& scratch) const;

  std::vector<double> oldest_first() const;

 private:
  std::vector<double> numbers_;
  size_t oldest_ = 0;
};

class BegBandit : public TuningPolicy {
 public:
  struct Setup {
    EagleOptions options;
    int64_t bs_threshold = 32;  // largest number of sequences with which to speculate
    uint64_t seed = 0;
  };

  // REQUIRES: options that have passed check(); arms whose strategies are theirs, and "off".
  BegBandit(const std::vector<Arm>& arms, Setup setup);

  size_t choose(const Load& load, uint64_t choice) override;
  void record(size_t arm, const StepOutcome& outcome) override;
  void new_weights() override;
  nlohmann::json save() const override;
  void restore(const nlohmann::json& state) override;

 private:
  size_t bucket(int64_t batch) const;  // of the batch size
  void find_candidates(size_t bucket);
  RecentNumbers& rewards(size_t bucket, size_t arm) {
    return rewards_[bucket * arms_.size() + arm];
  }

  const std::vector<Arm> arms_;
  const Setup setup_;
  size_t off_ = 0;
  std::vector<int64_t> group_sizes_;  // tokens to verify, descending

  std::vector<RecentNumbers> rewards_;  // [bucket, arm]
  std::vector<size_t> candidates_;      // scratch
  std::vector<double> scratch_;
};

}  // namespace tlt::speculation
