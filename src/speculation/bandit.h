// Bandit: TLT's choice of strategy, BEG (docs/paper_map.md), and FastRL's others: EG, UCB1,
// PREDEFINED.
//
// BEG groups the strategies by the rows they verify and gives each range of batch sizes one group:
// the more sequences, the fewer rows. In the group it takes the arm with the highest median reward
// of the last `mab_window`, or with probability epsilon any; an arm without rewards comes first.
// EG and UCB1 choose among all arms, separately for each of FastRL's batch sizes. UCB1 divides
// the rewards by the best arm's, so that its bonus sqrt(2 ln n / n_i) counts; FastRL adds it
// to tokens per second, where it means nothing. PREDEFINED takes the first arm of the group.
// Under a learned gate "off" is one more arm of every group (but not of PREDEFINED, which learns
// nothing).
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
  size_t size() const { return numbers_.size(); }

  // Of an even count, the mean of the two in the middle. REQUIRES: not empty.
  double median(std::vector<double>& scratch) const;
  // Without the lowest and the highest tenth. REQUIRES: not empty.
  double trimmed_mean(std::vector<double>& scratch) const;

  std::vector<double> oldest_first() const;

 private:
  std::vector<double> numbers_;
  size_t oldest_ = 0;
};

class Bandit : public TuningPolicy {
 public:
  struct Setup {
    EagleOptions options;
    bool off_competes = true;  // else the arm "off" is never chosen here
    int64_t max_rows = 2048;   // EG, UCB1: of a forward pass
    uint64_t seed = 0;
  };

  // REQUIRES: options that have passed check(); arms whose strategies are theirs, and "off".
  Bandit(const std::vector<Arm>& arms, Setup setup);

  size_t choose(const Load& load, uint64_t choice) override;
  void record(size_t arm, const StepOutcome& outcome) override;
  void new_weights() override;
  nlohmann::json save() const override;
  void restore(const nlohmann::json& state) override;

  // FastRL's 48 batch sizes: the place of the largest that is not above `batch`.
  static size_t release_batch(int64_t batch);
  static constexpr size_t kReleaseBatches = 48;

 private:
  enum class Kind { kBeg, kEg, kUcb1, kPredefined };

  bool by_buckets() const { return kind_ == Kind::kBeg || kind_ == Kind::kPredefined; }
  size_t context(int64_t batch) const;  // whose rewards count at this batch size
  void find_candidates(int64_t batch);
  size_t best_candidate(size_t context);
  double score(size_t context, size_t arm, double best_mean, double plays);
  RecentNumbers& rewards(size_t context, size_t arm) {
    return rewards_[context * arms_.size() + arm];
  }

  const std::vector<Arm> arms_;
  const Setup setup_;
  const Kind kind_;
  std::vector<int64_t> group_sizes_;  // rows to verify, descending

  std::vector<RecentNumbers> rewards_;  // [context, arm]
  std::vector<RecentNumbers> lengths_;  // [arm] acceptance lengths
  std::vector<size_t> candidates_;      // scratch
  std::vector<double> scratch_;
};

}  // namespace tlt::speculation
