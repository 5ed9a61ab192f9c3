// SPDX-License-Identifier: Apache-2.0
#include "rl/finished_groups.h"

#include <gtest/gtest.h>

namespace tlt::rl {
namespace {

run::Rollout rollout_of(uint32_t prompt, uint32_t sample) {
  run::Rollout rollout;
  rollout.prompt = prompt;
  rollout.response.sample = sample;
  return rollout;
}

class FinishedGroupsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    groups_.begin(/*samples=*/2, [](uint32_t prompt) { return prompt < 3; });
  }

  void add_scored(uint32_t prompt, uint32_t sample, double score = 1) {
    score_it(groups_.add(rollout_of(prompt, sample)), score);
  }
  void score_it(size_t id, double score = 1) {
    reward::ScoredSample scored;
    scored.id = id;
    scored.status = reward::RewardStatus::kScored;
    scored.result.score = score;
    groups_.attach(scored);
  }
  static std::vector<uint32_t> samples_of(const std::vector<run::Rollout>& rollouts) {
    std::vector<uint32_t> samples;
    for (const run::Rollout& rollout : rollouts) samples.push_back(rollout.response.sample);
    return samples;
  }

  FinishedGroups groups_;
};

TEST_F(FinishedGroupsTest, GroupIsCompleteWithItsLastScore) {
  const size_t late = groups_.add(rollout_of(1, 1));
  add_scored(1, 0, 0.5);
  EXPECT_FALSE(groups_.are_scored());
  EXPECT_EQ(groups_.complete(), 0);
  EXPECT_TRUE(groups_.take_oldest().empty());
  score_it(late, 0.25);
  EXPECT_TRUE(groups_.are_scored());
  ASSERT_EQ(groups_.complete(), 1);
  const auto group = groups_.take_newest();
  EXPECT_EQ(samples_of(group), (std::vector<uint32_t>{0, 1})) << "by sample";
  EXPECT_EQ(group[0].score, 0.5);
  EXPECT_EQ(group[1].score, 0.25);
  EXPECT_EQ(groups_.complete(), 0) << "it is taken once";
  EXPECT_EQ(groups_.rollouts().size(), 2U);
}

TEST_F(FinishedGroupsTest, OldestAndNewestAreInTheOrderOfCompletion) {
  for (const uint32_t prompt : {2, 0, 1})
    for (const uint32_t sample : {1, 0}) add_scored(prompt, sample);
  EXPECT_EQ(groups_.take_newest().front().prompt, 1U);
  EXPECT_EQ(groups_.take_oldest().front().prompt, 2U);
  EXPECT_EQ(groups_.take_oldest().front().prompt, 0U);
}

TEST_F(FinishedGroupsTest, GroupsThatAreNotTakenEarlyAreOnlyKept) {
  for (const uint32_t sample : {0, 1}) add_scored(3, sample);
  groups_.begin_again(1);
  for (const uint32_t sample : {0, 1}) add_scored(1, sample);
  EXPECT_EQ(groups_.complete(), 0);
  EXPECT_EQ(groups_.rollouts().size(), 4U);
}

TEST_F(FinishedGroupsTest, SampleThatComesTwiceCountsOnce) {
  add_scored(0, 0);
  add_scored(0, 0);
  EXPECT_EQ(groups_.complete(), 0);
  EXPECT_TRUE(groups_.are_scored());
  add_scored(0, 1);
  EXPECT_EQ(samples_of(groups_.take_oldest()), (std::vector<uint32_t>{0, 1}));
}

TEST_F(FinishedGroupsTest, RewardThatFailedIsSaid) {
  reward::ScoredSample failed;
  failed.id = groups_.add(rollout_of(0, 0));
  failed.status = reward::RewardStatus::kFailed;
  groups_.attach(failed);
  EXPECT_EQ(groups_.rollouts().front().fault, "its reward failed");
}

TEST_F(FinishedGroupsTest, NextStepBeginsEmpty) {
  add_scored(0, 0);
  add_scored(0, 1);
  groups_.begin(2, [](uint32_t) { return true; });
  EXPECT_EQ(groups_.complete(), 0);
  EXPECT_TRUE(groups_.rollouts().empty());
  EXPECT_TRUE(groups_.are_scored());
}

}  // namespace
}  // namespace tlt::rl
