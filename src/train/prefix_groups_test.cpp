// SPDX-License-Identifier: Apache-2.0
#include "train/prefix_groups.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace tlt::train {
namespace {

// A prompt of `prompt` tokens that depend on `kind`, and a response of `response` others.
TrainSample sample_of(int32_t kind, int32_t prompt, int32_t response) {
  TrainSample sample;
  sample.tokens.assign(static_cast<size_t>(prompt), kind);
  sample.tokens.insert(sample.tokens.end(), static_cast<size_t>(response), kind + 1);
  sample.response_begin = prompt;
  return sample;
}

std::vector<int64_t> all_of(const std::vector<TrainSample>& samples) {
  std::vector<int64_t> members(samples.size());
  std::iota(members.begin(), members.end(), 0);
  return members;
}

TEST(PrefixGroupsTest, NeighboursShareWholePagesOfThePrompt) {
  const std::vector<TrainSample> samples = {sample_of(1, 40, 10), sample_of(1, 40, 20),
                                            sample_of(3, 40, 5), sample_of(1, 40, 30)};
  const auto groups = plan_prefix_groups(samples, all_of(samples), 10'000);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].samples, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(groups[0].prefix, 32);
  EXPECT_EQ(groups[0].tokens, 32 + 18 + 28);
  EXPECT_EQ(groups[1].samples, std::vector<int64_t>{2});
  EXPECT_EQ(groups[1].prefix, 0);
  EXPECT_EQ(groups[1].tokens, 45);
  EXPECT_EQ(groups[2].samples, std::vector<int64_t>{3});
}

// The row of the prompt's last token predicts the response's first: each sample has its own.
TEST(PrefixGroupsTest, LastTokenOfThePromptIsNeverShared) {
  for (const auto& [prompt, prefix] : {std::pair{1, 0}, {16, 0}, {17, 16}, {32, 16}, {33, 32}}) {
    const std::vector<TrainSample> samples(2, sample_of(1, prompt, 4));
    const auto groups = plan_prefix_groups(samples, all_of(samples), 10'000);
    EXPECT_EQ(groups[0].prefix, prefix) << prompt;
    EXPECT_EQ(std::ssize(groups), prefix == 0 ? 2 : 1) << prompt;
  }
}

TEST(PrefixGroupsTest, OnlyMembersCount) {
  const std::vector<TrainSample> samples(5, sample_of(1, 20, 4));
  const std::vector<int64_t> members = {0, 2, 4};
  const auto groups = plan_prefix_groups(samples, members, 10'000);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].samples, members);
}

TEST(PrefixGroupsTest, LargeGroupIsSplitEvenly) {
  const std::vector<TrainSample> samples(64, sample_of(1, 65, 1000));
  const auto groups = plan_prefix_groups(samples, all_of(samples), 1'000'000);
  EXPECT_GE(groups.size(), 8u);
  for (const PrefixGroup& group : groups) EXPECT_LE(group.tokens, 64 * 1001 / 8 + 64);
}

TEST(PrefixGroupsTest, EachSampleIsInOneGroupWithinTheBudget) {
  RandomStream random(1, {});
  for (int round = 0; round < 300; ++round) {
    std::vector<TrainSample> samples;
    for (uint64_t i = random.below(40); i > 0; --i)
      samples.push_back(sample_of(static_cast<int32_t>(random.below(2)), 20,
                                  static_cast<int32_t>(random.below(60))));
    const int64_t budget = 1 + static_cast<int64_t>(random.below(300));
    std::vector<int64_t> seen;
    for (const PrefixGroup& group : plan_prefix_groups(samples, all_of(samples), budget)) {
      int64_t tokens = group.prefix;
      for (const int64_t i : group.samples) {
        const TrainSample& sample = samples[static_cast<size_t>(i)];
        tokens += static_cast<int64_t>(sample.tokens.size()) - group.prefix;
        EXPECT_EQ(sample.tokens[0], samples[static_cast<size_t>(group.samples[0])].tokens[0]);
      }
      EXPECT_EQ(tokens, group.tokens);
      EXPECT_TRUE(group.samples.size() == 1 || tokens <= budget);
      seen.insert(seen.end(), group.samples.begin(), group.samples.end());
    }
    EXPECT_EQ(seen, all_of(samples)) << "round " << round;
  }
}

TEST(PrefixGroupsTest, SampleWithoutAPromptIsAnError) {
  std::vector<TrainSample> samples = {sample_of(1, 0, 4)};
  EXPECT_THROW(plan_prefix_groups(samples, all_of(samples), 100), Error);
}

}  // namespace
}  // namespace tlt::train
