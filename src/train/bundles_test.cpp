// SPDX-License-Identifier: Apache-2.0
#include "train/bundles.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace tlt::train {
namespace {

// The prompt is `prompt` tokens of a kind, the response so many others.
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

TEST(BundlesTest, NeighboursWithThePromptShareItsWholePages) {
  const std::vector<TrainSample> samples = {sample_of(1, 40, 10), sample_of(1, 40, 20),
                                            sample_of(3, 40, 5), sample_of(1, 40, 30)};
  const auto bundles = plan_bundles(samples, all_of(samples), 10'000);
  ASSERT_EQ(bundles.size(), 3u);
  EXPECT_EQ(bundles[0].samples, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(bundles[0].stem, 32);
  EXPECT_EQ(bundles[0].tokens, 32 + 18 + 28);
  EXPECT_EQ(bundles[1].samples, std::vector<int64_t>{2});
  EXPECT_EQ(bundles[1].stem, 0);
  EXPECT_EQ(bundles[1].tokens, 45);
  EXPECT_EQ(bundles[2].samples, std::vector<int64_t>{3});
}

// The row of the prompt's last token predicts the response's first: each sample has its own.
TEST(BundlesTest, ThePromptsLastTokenIsNeverShared) {
  for (const auto& [prompt, stem] : {std::pair{1, 0}, {16, 0}, {17, 16}, {32, 16}, {33, 32}}) {
    const std::vector<TrainSample> samples(2, sample_of(1, prompt, 4));
    const auto bundles = plan_bundles(samples, all_of(samples), 10'000);
    EXPECT_EQ(bundles[0].stem, stem) << prompt;
    EXPECT_EQ(std::ssize(bundles), stem == 0 ? 2 : 1) << prompt;
  }
}

TEST(BundlesTest, OnlyMembersCount) {
  const std::vector<TrainSample> samples(5, sample_of(1, 20, 4));
  const std::vector<int64_t> members = {0, 2, 4};
  const auto bundles = plan_bundles(samples, members, 10'000);
  ASSERT_EQ(bundles.size(), 1u);
  EXPECT_EQ(bundles[0].samples, members);
}

TEST(BundlesTest, ALargePromptGroupIsSharedOutEvenly) {
  const std::vector<TrainSample> samples(64, sample_of(1, 65, 1000));
  const auto bundles = plan_bundles(samples, all_of(samples), 1'000'000);
  EXPECT_GE(bundles.size(), 8u);
  for (const Bundle& bundle : bundles) EXPECT_LE(bundle.tokens, 64 * 1001 / 8 + 64);
}

TEST(BundlesTest, EverySampleIsInOneBundleAndBundlesKeepTheBudget) {
  RandomStream random(1, {});
  for (int round = 0; round < 300; ++round) {
    std::vector<TrainSample> samples;
    for (uint64_t i = random.below(40); i > 0; --i)
      samples.push_back(sample_of(static_cast<int32_t>(random.below(2)), 20,
                                  static_cast<int32_t>(random.below(60))));
    const int64_t budget = 1 + static_cast<int64_t>(random.below(300));
    std::vector<int64_t> seen;
    for (const Bundle& bundle : plan_bundles(samples, all_of(samples), budget)) {
      int64_t tokens = bundle.stem;
      for (const int64_t i : bundle.samples) {
        const TrainSample& sample = samples[static_cast<size_t>(i)];
        tokens += static_cast<int64_t>(sample.tokens.size()) - bundle.stem;
        EXPECT_EQ(sample.tokens[0], samples[static_cast<size_t>(bundle.samples[0])].tokens[0]);
      }
      EXPECT_EQ(tokens, bundle.tokens);
      EXPECT_TRUE(bundle.samples.size() == 1 || tokens <= budget);
      seen.insert(seen.end(), bundle.samples.begin(), bundle.samples.end());
    }
    EXPECT_EQ(seen, all_of(samples)) << "round " << round;
  }
}

TEST(BundlesTest, ASampleWithoutAPromptIsAnError) {
  std::vector<TrainSample> samples = {sample_of(1, 0, 4)};
  EXPECT_THROW(plan_bundles(samples, all_of(samples), 100), Error);
}

}  // namespace
}  // namespace tlt::train
