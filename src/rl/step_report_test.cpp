// SPDX-License-Identifier: Apache-2.0
#include "rl/step_report.h"

#include <gtest/gtest.h>

namespace tlt::rl {
namespace {

run::Rollout make(uint32_t prompt, size_t tokens, double score, rollout::FinishReason finish) {
  run::Rollout rollout;
  rollout.prompt = prompt;
  rollout.score = score;
  rollout.response.tokens.resize(tokens);
  rollout.response.finish = finish;
  rollout.response.target_forwards = static_cast<int64_t>(tokens);
  return rollout;
}

TEST(StepReportTest, ReportsRolloutsUnderVerlsNames) {
  using rollout::FinishReason;
  std::vector<data::Prompt> prompts(2);
  prompts[0].tokens.resize(4);
  prompts[1].tokens.resize(6);
  const std::vector<run::Rollout> rollouts = {
      make(0, 10, 1, FinishReason::kStop), make(0, 20, 0, FinishReason::kLength),
      make(1, 30, 0, FinishReason::kStop), make(1, 40, 0, FinishReason::kStop)};
  Metrics metrics;
  report_rollouts(prompts, rollouts, /*max_tokens=*/50, metrics);
  EXPECT_EQ(metrics.at("critic/score/mean"), 0.25);
  EXPECT_EQ(metrics.at("response_length/mean"), 25);
  EXPECT_EQ(metrics.at("response_length/clip_ratio"), 0.25);
  EXPECT_EQ(metrics.at("response_length/limit"), 50);
  EXPECT_EQ(metrics.at("prompt_length/mean"), 5);
}

TEST(StepReportTest, ReportsAllGeneratedRollouts) {
  using rollout::FinishReason;
  Generated generated{.batches = 1};
  generated.count(
      std::vector{make(0, 10, 1, FinishReason::kStop), make(0, 20, 0, FinishReason::kLength)});
  generated.count(
      std::vector{make(1, 30, 0, FinishReason::kStop), make(1, 40, 0, FinishReason::kStop)});
  Metrics unfiltered;
  report_generated(generated, /*is_filtered=*/false, unfiltered);
  EXPECT_EQ(unfiltered.at("rollout/frac_reward_zero_std"), 0.5);
  EXPECT_EQ(unfiltered.at("rollout/tokens"), 100);
  EXPECT_EQ(unfiltered.at("rollout/tokens_per_target_forward"), 1);
  EXPECT_EQ(unfiltered.at("reward/unscored"), 0);
  EXPECT_EQ(unfiltered.find("train/num_gen_batches"), std::nullopt);
  generated.filtered = 1;
  Metrics filtered;
  report_generated(generated, /*is_filtered=*/true, filtered);
  EXPECT_EQ(filtered.at("train/num_gen_batches"), 1);
  EXPECT_EQ(filtered.at("rollout/dynamic_filter/drop_zero_std"), 1);
  EXPECT_EQ(filtered.at("rollout/dynamic_filter/drop_surplus"), 0);
  EXPECT_EQ(filtered.at("critic/score_generated/mean"), 0.25);
}

TEST(StepReportTest, AdvantagesAreAveragedOverTokens) {
  std::vector<train::TrainSample> samples(2);
  samples[0].advantages = {1, 1, 1};
  samples[1].advantages = {-2};
  Metrics metrics;
  report_advantages(std::vector<double>{0.5, 0}, samples, metrics);
  EXPECT_EQ(metrics.at("critic/rewards/mean"), 0.25);
  EXPECT_EQ(metrics.at("critic/advantages/mean"), 0.25);
  EXPECT_EQ(metrics.at("critic/advantages/min"), -2);
}

TEST(StepReportTest, ValidationIsByDataSource) {
  using rollout::FinishReason;
  std::vector<data::Prompt> prompts(2);
  prompts[0].data_source = "a";
  prompts[1].data_source = "b";
  const std::vector<run::Rollout> rollouts = {make(0, 1, 1, FinishReason::kStop),
                                              make(0, 1, 0, FinishReason::kStop),
                                              make(1, 1, 1, FinishReason::kStop)};
  Metrics metrics;
  report_validation(prompts, rollouts, 2, metrics);
  EXPECT_EQ(metrics.at("val-core/a/reward/mean@2"), 0.5);
  EXPECT_EQ(metrics.at("val-core/b/reward/mean@2"), 1);
  EXPECT_NEAR(metrics.at("val-aux/reward/mean"), 2.0 / 3, 1e-12);
  EXPECT_EQ(metrics.at("val-aux/response_length/clip_ratio"), 0);
  // The variance of 1, 0, 1 is 1/3.
  EXPECT_NEAR(metrics.at("val-aux/reward/standard_error"), 1.0 / 3, 1e-12);
}

}  // namespace
}  // namespace tlt::rl
