// SPDX-License-Identifier: Apache-2.0
#include "simulate/comparison.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::simulate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SimulateOptions two_workers() {
  SimulateOptions options;
  options.workers = 2;
  options.train_batch_size = 4;
  options.n = 4;
  options.total_training_steps = 2;
  options.max_response_length = 4096;
  options.lengths = "lognormal:500,4000";
  return options;
}

TEST(ComparisonTest, TableJsonAndSentenceSayTheSame) {
  const SimulateOptions options = two_workers();
  const auto results = compare_ways(options);
  ASSERT_EQ(results.size(), 6u);
  const auto json = to_json(options, results.back());
  EXPECT_EQ(json["way"], "tlt-early");
  EXPECT_EQ(json["responses"], 16);
  EXPECT_EQ(json["step_speedup"].get<double>(), results.back().step_speedup);
  EXPECT_THAT(sentence(options, results),
              HasSubstr("at 8 sequences per worker on H100 (ridge 295 rows) tlt-early makes"));
  for (const std::string& way : options.ways) EXPECT_THAT(to_table(results), HasSubstr(way));
}

TEST(ComparisonTest, SweepsCombine) {
  EXPECT_THAT(sweep_points({}), ElementsAre(ElementsAre()));
  EXPECT_THAT(sweep_points({"a=1,2", "b=x,y"}),
              ElementsAre(ElementsAre("a=1", "b=x"), ElementsAre("a=1", "b=y"),
                          ElementsAre("a=2", "b=x"), ElementsAre("a=2", "b=y")));
  EXPECT_THROW(sweep_points({"workers"}), InputError);
  EXPECT_THROW(sweep_points({"workers="}), InputError);
}

TEST(ComparisonTest, MostInfluentialInputComesFirst) {
  SimulateOptions options = two_workers();
  options.ways = {"plain", "static"};
  const auto all = sensitivities(options);
  EXPECT_EQ(all.size(), 15u);
  EXPECT_EQ(all.front().option, "draft_acceptance");
  EXPECT_LT(all.front().smaller, all.front().larger);
  EXPECT_EQ(all.back().smaller, all.back().larger);  // suffix drafts: not used here
}

}  // namespace
}  // namespace tlt::simulate
