// SPDX-License-Identifier: Apache-2.0
#include "drafter/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"

namespace tlt::drafter {
namespace {

using ::testing::HasSubstr;

std::string complaint(std::string_view text) {
  try {
    parse_strategy(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(StrategyTest, ReadsDepthWidthVerify) {
  EXPECT_EQ(parse_strategy("8_4_48"), (Strategy{8, 4, 48}));
  EXPECT_EQ(parse_strategy("off"), kOff);
  EXPECT_TRUE(kOff.is_off());
  EXPECT_FALSE(parse_strategy("1_1_2").is_off());
}

TEST(StrategyTest, ScoredNodesMatchEagle2) {  // width + (depth - 1) width^2
  EXPECT_EQ(scored_nodes({8, 4, 48}), 116);
  EXPECT_EQ(scored_nodes({10, 8, 48}), 584);
  EXPECT_EQ(scored_nodes({12, 8, 48}), 712);
  EXPECT_EQ(scored_nodes({5, 1, 6}), 5);  // a chain
  EXPECT_EQ(scored_nodes(kOff), 0);
}

TEST(StrategyTest, ToStringRoundTrips) {
  RandomStream random(/*seed=*/1, {});
  EXPECT_EQ(to_string(kOff), "off");
  for (int step = 0; step < 2000; ++step) {
    Strategy strategy{static_cast<int64_t>(1 + random.below(30)),
                      static_cast<int64_t>(1 + random.below(30)), 0};
    const auto nodes = static_cast<uint64_t>(std::min<int64_t>(scored_nodes(strategy), 9998));
    strategy.verify = static_cast<int64_t>(2 + random.below(nodes));
    EXPECT_EQ(parse_strategy(to_string(strategy)), strategy) << to_string(strategy);
  }
}

TEST(StrategyTest, AcceptsTreesUpToTheScoredNodes) {
  EXPECT_EQ(parse_strategy("8_4_117").verify, 117);
  EXPECT_THAT(complaint("8_4_118"), HasSubstr("give at most 117 as the third number"));
  EXPECT_EQ(parse_strategy("3_1_4").verify, 4);
  EXPECT_THAT(complaint("3_1_5"), HasSubstr("give at most 4"));
  EXPECT_EQ(parse_strategy("9999_9999_9999").width, 9999);
}

TEST(StrategyTest, InvalidStringsThrowInputError) {
  for (const char* text :
       {"", "8", "8_4", "8_4_", "_4_48", "8__48", "8_4_48_1", "8_4_48 ", " 8_4_48", "8,4,48",
        "8_-4_48", "+8_4_48", "8_4_4.8", "auto", "Off", "99999999999999999999_4_48"})
    EXPECT_THAT(complaint(text), HasSubstr("give depth_width_verify such as 8_4_48")) << text;
  for (const char* text : {"0_4_48", "8_0_48", "8_4_0", "10000_4_48"})
    EXPECT_THAT(complaint(text), HasSubstr("give numbers from 1 to 9999")) << text;
  EXPECT_THAT(complaint("8_4_1"), HasSubstr("give 2 or more as the third number, or off"));
}

}  // namespace
}  // namespace tlt::drafter
