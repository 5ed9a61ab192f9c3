// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/token_ranking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tlt::drafter_training {
namespace {

TEST(TokenRankingTest, CountsResponsesAndPutsTheEndsFirst) {
  // The prompt's tokens 9, 9, 9 do not count; 4 occurs three times, 2 and 7 twice, 0 once.
  const std::vector<DraftSample> samples = {
      make_sample({9, 9, 9, 4, 2, 4}, {}, /*response_begin=*/3, 0),
      make_sample({7, 7, 0, 2, 4}, {}, /*response_begin=*/0, 1)};
  EXPECT_THAT(rank_tokens(samples, std::vector<int32_t>{8, 5}, 10),
              ::testing::ElementsAre(5, 8, 4, 2, 7, 0, 1, 3, 6, 9));
}

}  // namespace
}  // namespace tlt::drafter_training
