// SPDX-License-Identifier: Apache-2.0
#include "run/report/step_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tlt::run {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Metrics a_step() {
  Metrics metrics;
  metrics.set("critic/score/mean", 0.43);
  metrics.set("actor/ppo_kl", 0.0);
  metrics.set("actor/entropy", 0.451);
  metrics.set("response_length/mean", 120);
  metrics.set("response_length/clip_ratio", 0.02);
  metrics.set("rollout/tokens_per_second", 12345);
  metrics.set("rollout/spec_accept_length", 2.851);
  metrics.set("rollout/idle_share", 0.2);
  metrics.set("timing_s/step", 4.2);
  metrics.set("timing_s/gen", 1.3);
  metrics.set("timing_s/update_actor", 2.4);
  return metrics;
}

TEST(StepLineTest, MainMetricsComeFirst) {
  const Metrics metrics = with_main(a_step());
  EXPECT_EQ(metrics.begin()->first, "main/score");
  EXPECT_EQ(metrics.at("main/kl"), 0);
  EXPECT_EQ(metrics.at("main/idle_share"), 0.2);
  EXPECT_EQ(metrics.find("main/validation_score"), std::nullopt);
  EXPECT_EQ(metrics.at("actor/entropy"), 0.451) << "keeps all metrics";
}

TEST(StepLineTest, StepIsOneLine) {
  EXPECT_THAT(step_lines({3, 30, 310.0}, with_main(a_step())),
              ElementsAre("step  3/30  score 0.430  entropy 0.45  trunc   2%  12.3k tok/s  "
                          "accept 2.85   4.2 s (gen 1.3 upd 2.4)  ETA 5:10"));
}

TEST(StepLineTest, ValidationIsASeparateLine) {
  Metrics metrics;
  metrics.set("val-aux/reward/mean", 0.633);
  metrics.set("val-aux/reward/standard_error", 0.03);
  metrics.set("val-aux/response_length/clip_ratio", 0.005);
  metrics.set("timing_s/testing", 12.34);
  EXPECT_THAT(step_lines({0, 30, {}}, with_main(metrics)),
              ElementsAre("step  0/30  validation 0.633 ± 0.030  trunc   0%  12.3 s"));
  EXPECT_THAT(step_lines({0, 30, {}}, Metrics()), IsEmpty());
}

TEST(StepLineTest, SupervisedFineTuningShowsItsLoss) {
  Metrics metrics;
  metrics.set("train/loss", 0.43219);
  metrics.set("train/tokens_per_second", 12345);
  metrics.set("timing_s/step", 0.52);
  metrics.set("val/loss", 0.5);
  metrics.set("val/perplexity", 1.6487);
  metrics.set("timing_s/testing", 1.2);
  EXPECT_THAT(step_lines({7, 100, 61.0}, with_main(metrics)),
              ElementsAre("step   7/100  loss 0.4322  12.3k tok/s   0.5 s  ETA 1:01",
                          "step   7/100  validation loss 0.5000  perplexity 1.649  1.2 s"));
}

TEST(StepLineTest, LongestLineFitsAfterTheLogPrefix) {
  Metrics metrics = a_step();
  metrics.set("actor/kl_loss", 0.0012);
  metrics.set("critic/score/mean", -0.43);
  metrics.set("response_length/clip_ratio", 1);
  metrics.set("timing_s/step", 104.2);
  metrics.set("timing_s/gen", 50.5);
  metrics.set("timing_s/update_actor", 40.1);
  const std::string prefix = "2026-11-24 00:20:11 I ";
  const auto lines = step_lines({999, 1000, 7200.0}, with_main(metrics));
  EXPECT_LT(prefix.size() + lines.at(0).size(), 160u) << lines.at(0);
  metrics.set("actor/kl_loss", std::nan(""));
  EXPECT_EQ(step_lines({30, 30, 0.0}, with_main(metrics)).size(), 1u);
}

}  // namespace
}  // namespace tlt::run
