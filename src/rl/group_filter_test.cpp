// SPDX-License-Identifier: Apache-2.0
#include "rl/group_filter.h"

#include <gtest/gtest.h>

#include <map>

#include "base/check.h"
#include "base/random.h"

namespace tlt::rl {
namespace {

run::Rollout make(uint32_t prompt, uint32_t sample, double score,
                  std::map<std::string, double> extras = {}) {
  run::Rollout rollout;
  rollout.prompt = prompt;
  rollout.response.sample = sample;
  rollout.response.tokens.resize(3);
  rollout.response.target_forwards = 2;
  rollout.score = score;
  rollout.extras = std::move(extras);
  return rollout;
}

GroupFilter make_filter(const std::string& metric, std::vector<std::string> functions = {"auto"},
                        std::vector<double> weights = {}) {
  reward::RewardOptions rewards;
  rewards.functions = std::move(functions);
  rewards.weights = std::move(weights);
  return {{.enable = true, .metric = metric}, rewards};
}

TEST(GroupFilterTest, KeepsOnlyGroupsWithDifferentValues) {
  const GroupFilter filter = make_filter("seq_reward");
  EXPECT_TRUE(filter.keeps(std::vector{make(0, 0, 0), make(0, 1, 0), make(0, 2, 1)}));
  EXPECT_FALSE(filter.keeps(std::vector{make(0, 0, 1), make(0, 1, 1)}));
  // Their computed standard deviation is 1.4e-17.
  EXPECT_FALSE(filter.keeps(std::vector{make(0, 0, 0.1), make(0, 1, 0.1), make(0, 2, 0.1)}));
  EXPECT_TRUE(filter.keeps(std::vector{make(0, 0, 1)})) << "group of one";
}

TEST(GroupFilterTest, AccuracyIsTheExtraNamedAcc) {
  const std::vector group = {make(0, 0, 0.7, {{"acc", 1}}), make(0, 1, 0.2, {{"acc", 1}})};
  EXPECT_FALSE(make_filter("acc").keeps(group));
  EXPECT_TRUE(make_filter("score").keeps(group));
}

TEST(GroupFilterTest, AccuracyExcludesShapingRewards) {
  const GroupFilter filter =
      make_filter("acc", {"math", "length", "gsm8k", "repetition"}, {1, 1, 0.5, 1});
  const std::map<std::string, double> right = {
      {"math", 1}, {"gsm8k", 1}, {"length", -0.3}, {"repetition", 0}};
  const std::map<std::string, double> longer = {
      {"math", 1}, {"gsm8k", 1}, {"length", -0.9}, {"repetition", -1}};
  const std::map<std::string, double> half = {{"math", 1}, {"gsm8k", 0}, {"length", -0.3}};
  EXPECT_EQ(filter.value(make(0, 0, 1.2, right)), 1.5);
  EXPECT_FALSE(filter.keeps(std::vector{make(0, 0, 1.2, right), make(0, 1, -0.4, longer)}));
  EXPECT_TRUE(filter.keeps(std::vector{make(0, 0, 1.2, right), make(0, 1, 0.7, half)}));
  EXPECT_EQ(
      make_filter("acc", {"math", "format"}).value(make(0, 0, 2, {{"math", 1}, {"format", 1}})), 1);
  // Without shaping rewards the accuracy is the score, with or without weights.
  EXPECT_EQ(make_filter("acc", {"math", "gsm8k"}).value(make(0, 0, 2, right)), 2);
}

TEST(GroupFilterTest, UnknownMetricsAreRefusedByName) {
  try {
    make_filter("entropy");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "algorithm.filter_groups.metric is 'entropy'; use acc, score, seq_reward or "
                 "seq_final_reward");
  }
  EXPECT_THROW((run::FilterGroupsOptions{.max_num_gen_batches = -1}.check()), InputError);
}

// Against a direct implementation of verl's filter: the first groups with variance in the list of
// all groups of all batches (recipe/dapo/dapo_ray_trainer.py).
TEST(StepGroupsTest, RandomBatchesMatchTheReference) {
  constexpr int64_t kSamples = 3;
  const GroupFilter filter = make_filter("seq_reward");
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomStream random(seed, {});
    const auto wanted = static_cast<int64_t>(1 + random.below(8));
    const size_t batch_size = 1 + random.below(8);
    StepGroups groups(&filter, wanted, kSamples);
    std::vector<std::pair<uint32_t, std::vector<double>>> all;  // (prompt id, scores)
    int64_t batches = 0;
    for (uint32_t id = 0; !groups.is_full(); ++batches) {
      std::vector<data::Prompt> prompts(batch_size);
      std::vector<run::Rollout> rollouts;
      for (uint32_t i = 0; i < batch_size; ++i, ++id) {
        prompts[i].id = id;
        all.emplace_back(id, std::vector<double>{});
        for (uint32_t k = 0; k < kSamples; ++k) {
          const double score = static_cast<double>(random.below(2));
          all.back().second.push_back(score);
          rollouts.push_back(make(i, k, score));
        }
      }
      groups.add(std::move(prompts), std::move(rollouts));
    }
    std::vector<std::pair<uint32_t, std::vector<double>>> kept;
    int64_t equal = 0;
    double sum = 0;
    for (const auto& group : all) {
      double mean = 0, variance = 0;
      for (const double score : group.second) mean += score / kSamples;
      for (const double score : group.second) variance += (score - mean) * (score - mean);
      variance > 1e-9 ? kept.push_back(group) : void(++equal);
      sum += mean * kSamples;
    }
    ASSERT_GE(std::ssize(kept), wanted) << "seed " << seed;
    // The last batch was necessary.
    int64_t before_last = 0;
    for (const auto& [id, scores] : kept)
      before_last += id < (batches - 1) * static_cast<int64_t>(batch_size) ? 1 : 0;
    ASSERT_LT(before_last, wanted) << "seed " << seed;

    const Generated& generated = groups.generated();
    EXPECT_EQ(generated.batches, batches);
    EXPECT_EQ(generated.groups, std::ssize(all));
    EXPECT_EQ(generated.filtered, equal);
    EXPECT_EQ(generated.equal_groups, equal);
    EXPECT_EQ(generated.surplus, std::ssize(kept) - wanted);
    EXPECT_EQ(generated.responses, std::ssize(all) * kSamples);
    EXPECT_EQ(generated.tokens, std::ssize(all) * kSamples * 3);
    EXPECT_EQ(generated.forwards, std::ssize(all) * kSamples * 2);
    EXPECT_NEAR(generated.score, sum, 1e-9);
    ASSERT_EQ(groups.size(), wanted);
    ASSERT_EQ(std::ssize(groups.rollouts()), wanted * kSamples);
    for (size_t i = 0; i < groups.rollouts().size(); ++i) {
      const run::Rollout& rollout = groups.rollouts()[i];
      const auto& [id, scores] = kept[i / kSamples];
      EXPECT_EQ(rollout.prompt, i / kSamples) << "seed " << seed;
      EXPECT_EQ(groups.prompts()[rollout.prompt].id, id) << "seed " << seed;
      EXPECT_EQ(rollout.response.sample, i % kSamples);
      EXPECT_EQ(rollout.score, scores[i % kSamples]);
    }
  }
}

TEST(StepGroupsTest, WithoutAFilterKeepsAllInOrder) {
  StepGroups groups(nullptr, 2, 2);
  std::vector<data::Prompt> prompts(2);
  prompts[0].id = 7;
  prompts[1].id = 5;
  groups.add(prompts, {make(0, 0, 1), make(0, 1, 1), make(1, 0, 0), make(1, 1, 0)});
  EXPECT_TRUE(groups.is_full());
  EXPECT_EQ(groups.prompts()[1].id, 5U);
  EXPECT_EQ(groups.rollouts()[3].prompt, 1U);
  EXPECT_EQ(groups.generated().equal_groups, 2);
  EXPECT_EQ(groups.generated().filtered, 0);
}

// ReMax: the last of a group is kept apart, and counts in filter and statistics.
TEST(StepGroupsTest, GreedyResponsesAreNotTrainedOn) {
  const GroupFilter filter({.enable = true}, {});
  StepGroups groups(&filter, 2, 3, /*has_baseline=*/true);
  std::vector<data::Prompt> prompts(3);
  for (uint32_t i = 0; i < 3; ++i) prompts[i].id = 5 + i;
  groups.add(prompts, {make(0, 0, 1), make(0, 1, 1), make(0, 2, 0),  // differs from the greedy one
                       make(1, 0, 0), make(1, 1, 0), make(1, 2, 0),  // no advantage
                       make(2, 0, 1), make(2, 1, 0), make(2, 2, 0)});
  ASSERT_TRUE(groups.is_full());
  ASSERT_EQ(groups.rollouts().size(), 4U);
  ASSERT_EQ(groups.baselines().size(), 2U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(groups.rollouts()[i].prompt, i / 2);
    EXPECT_EQ(groups.rollouts()[i].response.sample, i % 2);
  }
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(groups.baselines()[i].prompt, i);
    EXPECT_EQ(groups.baselines()[i].response.sample, 2U);
  }
  EXPECT_EQ(groups.generated().responses, 9);
  EXPECT_EQ(groups.generated().filtered, 1);
}

TEST(StepGroupsTest, RefusesIncompleteGroups) {
  StepGroups groups(nullptr, 1, 2);
  EXPECT_THROW(groups.add(std::vector<data::Prompt>(1), {make(0, 0, 1)}), Error);
}

}  // namespace
}  // namespace tlt::rl
