// SPDX-License-Identifier: Apache-2.0
#include "drafter/suffix/suffix_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "base/random.h"

namespace tlt::drafter {
namespace {

TEST(SuffixHistoryTest, KeepsTheLastResponsesOfAPrompt) {
  SuffixHistory history(/*responses_per_prompt=*/2);
  EXPECT_TRUE(history.responses(3).empty());
  for (int32_t i = 0; i < 5; ++i) history.add(3, std::vector<int32_t>{i, i}, /*policy=*/i + 7);
  EXPECT_EQ(history.responses(3), (SuffixHistory::Responses{{{3, 3}, 10}, {{4, 4}, 11}}));
  SuffixHistory none(/*responses_per_prompt=*/0);
  none.add(3, std::vector<int32_t>{1}, /*policy=*/0);
  EXPECT_TRUE(none.responses(3).empty());
  EXPECT_EQ(none.memory_bytes(), 0);
}

TEST(SuffixHistoryTest, RandomWalkMatchesReference) {
  constexpr size_t kMost = 3;
  SuffixHistory history(kMost);
  std::deque<std::pair<uint32_t, SuffixHistory::Responses>> want;  // oldest first
  RandomStream random(/*seed=*/6, {});
  for (int step = 0; step < 5000; ++step) {
    if (random.below(5) == 0) {
      ASSERT_EQ(history.forget_oldest(), !want.empty()) << "step " << step;
      if (!want.empty()) want.pop_front();
    } else {
      const auto id = static_cast<uint32_t>(random.below(20));
      std::vector<int32_t> response(1 + random.below(50), step);
      history.add(id, response, step);
      const auto known = std::ranges::find(want, id, [](const auto& one) { return one.first; });
      SuffixHistory::Responses responses;
      if (known != want.end()) {
        responses = known->second;
        want.erase(known);
      }
      responses.push_back({response, step});
      if (responses.size() > kMost) responses.erase(responses.begin());
      want.emplace_back(id, responses);
    }
    int64_t tokens = 0;
    for (uint32_t id = 0; id < 20; ++id) {
      const auto known = std::ranges::find(want, id, [](const auto& one) { return one.first; });
      const auto& responses = known == want.end() ? SuffixHistory::Responses() : known->second;
      ASSERT_EQ(history.responses(id), responses) << "step " << step << ", prompt " << id;
      for (const auto& response : responses) tokens += std::ssize(response.tokens);
    }
    ASSERT_GE(history.memory_bytes(), 4 * tokens) << "step " << step;
    ASSERT_EQ(history.memory_bytes() == 0, want.empty()) << "step " << step;
  }
}

}  // namespace
}  // namespace tlt::drafter
