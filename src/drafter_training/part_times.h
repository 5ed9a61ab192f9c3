// PartTimes: predicts how long the parts of draft model training take, from those done before. A
// slice of idle training begins another part only if it is likely to end in time.
//
// A pack of few tokens costs almost as much as the previous one, a part of the optimizer step a
// tenth: so they are predicted separately, and a pack is not predicted shorter than the last one.
//
// Threading  one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace tlt::drafter_training {

class PartTimes {
 public:
  void add_pack(int64_t tokens, double seconds) {
    const double each = seconds / static_cast<double>(tokens);
    per_token_ = per_token_ > 0 ? per_token_ + kNewestShare * (each - per_token_) : each;
    last_pack_ = seconds;
  }
  void add_update(double seconds) { last_update_ = seconds; }

  bool knows_packs() const { return per_token_ > 0; }
  // Predicted times of the next parts; 0: unknown.
  double pack_seconds(int64_t tokens) const {
    return std::max(last_pack_, per_token_ * static_cast<double>(tokens));
  }
  double update_seconds() const { return last_update_; }
  // Tokens of a pack that takes `seconds`. REQUIRES: knows_packs().
  int64_t tokens_within(double seconds) const {
    return static_cast<int64_t>(std::min(seconds / per_token_, 1e9));
  }

 private:
  static constexpr double kNewestShare = 0.2;  // weight of a pack in the mean time per token

  double per_token_ = 0, last_pack_ = 0, last_update_ = 0;
};

}  // namespace tlt::drafter_training
