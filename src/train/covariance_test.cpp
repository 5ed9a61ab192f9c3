// SPDX-License-Identifier: Apache-2.0
#include "train/covariance.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"

namespace tlt::train {
namespace {

struct SelectionBatch {
  std::vector<TrainSample> samples;
  std::vector<std::vector<float>> logprobs;
};

// Logprobs of the rollout: no token is clipped.
SelectionBatch selection_batch(size_t samples, size_t tokens) {
  RandomStream random(5, {});
  SelectionBatch batch;
  for (size_t i = 0; i < samples; ++i) {
    TrainSample& sample = batch.samples.emplace_back();
    sample.response_begin = 1;
    sample.tokens.resize(1 + tokens);
    batch.logprobs.emplace_back();
    for (size_t t = 0; t < tokens; ++t) {
      batch.logprobs.back().push_back(static_cast<float>(-3 * random.uniform()));
      sample.advantages.push_back(i % 2 == 0 ? 1.F : -1.F);
    }
    sample.rollout_logprobs = batch.logprobs.back();
  }
  return batch;
}

LossOptions clip_cov(double ratio) {
  LossOptions options;
  options.policy_loss = {
      .loss_mode = "clip_cov", .clip_cov_ratio = ratio, .clip_cov_lb = 0.2, .clip_cov_ub = 1.2};
  return options;
}

int64_t count_of(const std::vector<std::vector<bool>>& selected) {
  int64_t count = 0;
  for (const std::vector<bool>& response : selected)
    count += std::count(response.begin(), response.end(), true);
  return count;
}

TEST(CovarianceTest, ClipCovTakesSomeOfTheTokensBetweenTheBounds) {
  const SelectionBatch batch = selection_batch(10, 100);
  const auto all = select_tokens(clip_cov(1), batch.samples, batch.logprobs, 0);
  const auto some = select_tokens(clip_cov(0.0399), batch.samples, batch.logprobs, 0);
  EXPECT_GT(count_of(all), 100);
  EXPECT_EQ(count_of(some), 39);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t t = 0; t < all[i].size(); ++t) EXPECT_LE(some[i][t], all[i][t]);
  EXPECT_EQ(count_of(select_tokens(clip_cov(1e-6), batch.samples, batch.logprobs, 0)), 1);
}

TEST(CovarianceTest, EachStepTakesOthersAndTheSameStepTheSame) {
  const SelectionBatch batch = selection_batch(10, 100);
  const auto take = [&](int64_t step) {
    return select_tokens(clip_cov(0.02), batch.samples, batch.logprobs, step);
  };
  EXPECT_EQ(take(3), take(3));
  EXPECT_NE(take(3), take(4));
}

TEST(CovarianceTest, ClippedTokensAreNotTaken) {
  SelectionBatch batch = selection_batch(4, 50);
  for (TrainSample& sample : batch.samples)
    for (size_t t = 0; t < 50;
         ++t)  // the ratio e^1 with a positive, e^-1 with a negative advantage
      sample.rollout_logprobs[t] -= sample.advantages[t];
  EXPECT_EQ(count_of(select_tokens(clip_cov(1), batch.samples, batch.logprobs, 0)), 0);
}

TEST(CovarianceTest, KlCovTakesTheLargestAndOfEqualOnesTheFirst) {
  LossOptions options;
  options.policy_loss = {.loss_mode = "kl_cov", .kl_cov_ratio = 0.5};
  SelectionBatch batch = selection_batch(2, 2);
  batch.samples[0].advantages = {1, 1};
  batch.samples[1].advantages = {-1, -1};
  batch.logprobs = {{-1, -2}, {-3, -2}};  // the mean is -2: covariances 1, 0, 1, 0
  EXPECT_EQ(select_tokens(options, batch.samples, batch.logprobs, 0),
            (std::vector<std::vector<bool>>{{true, false}, {true, false}}));
  options.policy_loss.kl_cov_ratio = 0.75;
  EXPECT_EQ(select_tokens(options, batch.samples, batch.logprobs, 0),
            (std::vector<std::vector<bool>>{{true, true}, {true, false}}));
  options.policy_loss.kl_cov_ratio = 0.01;
  EXPECT_EQ(select_tokens(options, batch.samples, batch.logprobs, 0),
            (std::vector<std::vector<bool>>{{true, false}, {false, false}}));
}

TEST(CovarianceTest, TokensOfWeightZeroNeitherCountNorAreTaken) {
  LossOptions options;
  options.policy_loss = {.loss_mode = "kl_cov", .kl_cov_ratio = 1};
  SelectionBatch batch = selection_batch(2, 3);
  for (TrainSample& sample : batch.samples) sample.weights = {1, 0, 1};
  const auto without = select_tokens(options, batch.samples, batch.logprobs, 0);
  EXPECT_EQ(without, (std::vector<std::vector<bool>>{{true, false, true}, {true, false, true}}));
}

}  // namespace
}  // namespace tlt::train
