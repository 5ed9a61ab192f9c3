// MathReward: 1 if the answer at the end of a response equals the ground truth as a mathematical
// object, else 0.
//
// The answer is the content of the last `\boxed{…}`. Without one, kFlexible takes the text after
// the last "answer is" or "answer:", else the last formula between dollars, else the last number;
// kStrict takes nothing. The ground truth may be a whole solution with its own `\boxed{…}`.
//
// Not here   equality (math_equal.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "reward/reward.h"

namespace tlt::reward {

enum class MathMethod { kStrict, kFlexible };

// The part of `response` that is its answer; nullopt: none. Linear time.
[[nodiscard]] std::optional<std::string_view> try_math_answer(std::string_view response,
                                                              MathMethod method);

class MathReward : public Reward {
 public:
  explicit MathReward(MathMethod method) : method_(method) {}

  RewardResult score(const RewardInput& input) const override;
  void check_row(const RewardInput& row) const override;
  RewardNeeds needs() const override { return {.ground_truth = true}; }
  std::string name() const override {
    return method_ == MathMethod::kFlexible ? "math" : "math_strict";
  }

 private:
  const MathMethod method_;
};

}  // namespace tlt::reward
