// SPDX-License-Identifier: Apache-2.0
#include "rl/step_report.h"

#include <gtest/gtest.h>

#include "rl/validation.h"

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

TEST(StepReportTest, TimesPhasesOneAfterTheOther) {
  StepReport report;
  report.end_phase("gen");
  report.end_phase("ref");
  EXPECT_EQ(report.metrics().size(), 2);
  EXPECT_LE(report.metrics().at("timing_s/gen") + report.metrics().at("timing_s/ref"),
            report.seconds());
}

TEST(StepReportTest, ReportsRolloutsUnderVerlsNames) {
  using rollout::FinishReason;
  std::vector<data::Prompt> prompts(2);
  prompts[0].tokens.resize(4);
  prompts[1].tokens.resize(6);
  const std::vector<run::Rollout> rollouts = {
      make(0, 10, 1, FinishReason::kStop), make(0, 20, 0, FinishReason::kLength),
      make(1, 30, 0, FinishReason::kStop), make(1, 40, 0, FinishReason::kStop)};
  StepReport report;
  report.add_rollouts(prompts, rollouts, /*max_tokens=*/50);
  EXPECT_EQ(report.metrics().at("critic/score/mean"), 0.25);
  EXPECT_EQ(report.metrics().at("response_length/mean"), 25);
  EXPECT_EQ(report.metrics().at("response_length/clip_ratio"), 0.25);
  EXPECT_EQ(report.metrics().at("response_length/limit"), 50);
  EXPECT_EQ(report.metrics().at("prompt_length/mean"), 5);
}

TEST(StepReportTest, ReportsBaselinesAndCritic) {
  using rollout::FinishReason;
  StepReport report;
  report.add_baselines({});
  EXPECT_EQ(report.metrics().size(), 0);
  report.add_baselines(
      std::vector{make(0, 3, 1, FinishReason::kStop), make(1, 3, 0, FinishReason::kStop)});
  EXPECT_EQ(report.metrics().at("critic/baseline/mean"), 0.5);
  EXPECT_EQ(report.metrics().at("rollout/greedy_responses"), 2);

  std::vector<train::TrainSample> samples(2);
  samples[0].values = {1, 5, 3};
  samples[0].returns = {2, 9, 4};
  samples[0].weights = {1, 0, 1};  // the second token was not sampled
  samples[1].values = {0};
  samples[1].returns = {0};
  train::TrainStats stats;
  stats.metrics = {{"critic/vf_loss", 0.25}};
  stats.skipped_steps = 1;
  report.add_critic(stats, samples);
  EXPECT_EQ(report.metrics().at("critic/vf_loss"), 0.25);
  EXPECT_EQ(report.metrics().at("critic/skipped_steps"), 1);
  EXPECT_EQ(report.metrics().at("critic/values/max"), 3);
  EXPECT_EQ(report.metrics().at("critic/returns/mean"), 2);
  // Errors 1, 1, 0; returns 2, 4, 0: 1 - (1/3) / 4.
  EXPECT_NEAR(report.metrics().at("critic/vf_explained_var"), 1 - 1.0 / 12, 1e-5);
}

TEST(StepReportTest, ReportsAllGeneratedRollouts) {
  using rollout::FinishReason;
  Generated generated{.batches = 1};
  generated.count(
      std::vector{make(0, 10, 1, FinishReason::kStop), make(0, 20, 0, FinishReason::kLength)});
  generated.count(
      std::vector{make(1, 30, 0, FinishReason::kStop), make(1, 40, 0, FinishReason::kStop)});
  StepReport unfiltered;
  unfiltered.add_generated(generated, /*is_filtered=*/false);
  EXPECT_EQ(unfiltered.metrics().at("rollout/frac_reward_zero_std"), 0.5);
  EXPECT_EQ(unfiltered.metrics().at("rollout/tokens"), 100);
  EXPECT_EQ(unfiltered.metrics().at("rollout/tokens_per_target_forward"), 1);
  EXPECT_EQ(unfiltered.metrics().at("reward/unscored"), 0);
  EXPECT_EQ(unfiltered.metrics().find("train/num_gen_batches"), std::nullopt);
  generated.filtered = 1;
  StepReport filtered;
  filtered.add_generated(generated, /*is_filtered=*/true);
  EXPECT_EQ(filtered.metrics().at("train/num_gen_batches"), 1);
  EXPECT_EQ(filtered.metrics().at("rollout/dynamic_filter/drop_zero_std"), 1);
  EXPECT_EQ(filtered.metrics().at("rollout/dynamic_filter/drop_surplus"), 0);
  EXPECT_EQ(filtered.metrics().at("critic/score_generated/mean"), 0.25);
}

TEST(StepReportTest, AdvantagesAreAveragedOverTokens) {
  std::vector<train::TrainSample> samples(2);
  samples[0].advantages = {1, 1, 1};
  samples[1].advantages = {-2};
  StepReport report;
  report.add_advantages(std::vector<double>{0.5, 0}, samples);
  EXPECT_EQ(report.metrics().at("critic/rewards/mean"), 0.25);
  EXPECT_EQ(report.metrics().at("critic/advantages/mean"), 0.25);
  EXPECT_EQ(report.metrics().at("critic/advantages/min"), -2);
}

TEST(StepReportTest, ValidationIsByDataSource) {
  using rollout::FinishReason;
  std::vector<data::Prompt> prompts(2);
  prompts[0].data_source = "a";
  prompts[1].data_source = "b";
  const std::vector<run::Rollout> rollouts = {
      make(0, 1, 1, FinishReason::kStop), make(0, 1, 0, FinishReason::kStop),
      make(1, 1, 1, FinishReason::kStop), make(1, 1, 1, FinishReason::kStop)};
  StepReport report;
  report.add_validation(prompt_scores(prompts, rollouts, GroupFilter({}, {})), rollouts);
  EXPECT_EQ(report.metrics().at("val-core/a/reward/mean@2"), 0.5);
  EXPECT_EQ(report.metrics().at("val-core/b/reward/mean@2"), 1);
  EXPECT_EQ(report.metrics().at("val-core/a/reward/best@2/mean"), 1);
  EXPECT_EQ(report.metrics().at("val-aux/a/acc/pass@1"), 0.5);
  EXPECT_FALSE(report.metrics().find("val-core/a/reward/maj@2/mean"));  // no answers
  EXPECT_NEAR(report.metrics().at("val-aux/reward/mean"), 0.75, 1e-12);
  EXPECT_EQ(report.metrics().at("val-aux/response_length/clip_ratio"), 0);
  // The variance of 1, 0, 1, 1 is 1/4.
  EXPECT_NEAR(report.metrics().at("val-aux/reward/standard_error"), 0.25, 1e-12);
}

}  // namespace
}  // namespace tlt::rl
