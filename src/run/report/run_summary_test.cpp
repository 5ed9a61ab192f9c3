// SPDX-License-Identifier: Apache-2.0
#include "run/report/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The summary of a run whose metrics.jsonl has these rows.
std::vector<std::string> summary_of(const std::string& rows, const RunFacts& facts) {
  const TestFolder folder;
  write_file_atomic(folder / "metrics.jsonl", rows);
  return summarize(MetricHistory(folder / "metrics.jsonl"), facts);
}

TEST(RunSummaryTest, SummarizesAnRlRun) {
  const std::string rows =
      R"({"step":0,"main/validation_score":0.4375,"val-aux/reward/standard_error":0.031,)"
      R"("timing_s/testing":10})"
      "\n"
      R"({"step":1,"critic/score/mean":0.5,"response_length/p50":74,)"
      R"("response_length/clip_ratio":0,"response_length/limit":1024,)"
      R"("drafter/acceptance_length/before":1.02,"drafter/acceptance_length/after":1.5,)"
      R"("drafter/published":1,"drafter/used_seconds":1,"rollout/worker_seconds":20,)"
      R"("rollout/idle_share":0.1,"timing_s/step":30,"timing_s/gen":10,"rollout/plain_seconds":10,)"
      R"("rollout/sequences_per_worker":16,"rollout/ridge":20,"rollout/half_empty_share":0.4,)"
      R"("rollout/tail_share":0.2,)"
      R"("timing_s/update_actor":15,"rollout/spec_accept_length":1.1})"
      "\n"
      R"({"step":2,"critic/score/mean":0.75,"response_length/p50":170,)"
      R"("response_length/clip_ratio":0.18,"response_length/limit":1024,)"
      R"("drafter/acceptance_length/before":1.5,"drafter/acceptance_length/after":4.8,)"
      R"("drafter/acceptance_length/frozen":1.5,"drafter/published":1,)"
      R"("drafter/used_seconds":5,"rollout/worker_seconds":20,"rollout/idle_share":0.3,)"
      R"("rollout/sequences_per_worker":16,"rollout/ridge":20,"rollout/half_empty_share":0.6,)"
      R"("rollout/tail_share":0.3,"rollout/plain_seconds":25,)"
      R"("timing_s/step":40,"timing_s/gen":10,"timing_s/update_actor":25,)"
      R"("rollout/spec_accept_length":2.85,"main/validation_score":0.6641,)"
      R"("val-aux/reward/standard_error":0.029,"timing_s/testing":10})"
      "\n"
      R"({"step":3,"drafter/acceptance_length/frozen":1.4})"
      "\n";
  EXPECT_THAT(
      summary_of(rows, {.folder = "runs/a",
                        .program = "build/tlt",
                        .policy = "runs/a/checkpoints/step_000002/policy",
                        .has_drafter = true,
                        .has_tensorboard = true,
                        .replayed = 16,
                        .equal = 16}),
      ElementsAre(
          "Run summary (2 steps, 1 min 30 s)    runs/a",
          "  held-out score      0.438 ± 0.031 -> 0.664 ± 0.029   (best 0.664 at step 2)",
          "  training score      0.500 -> 0.750   (means of 1 step)",
          "  response length     median 74 -> 170 tokens",
          "  truncated           0 % -> 18 % of responses at 1,024 tokens; raise "
          "data.max_response_length",
          "  draft model         acceptance length 1.02 -> 4.80 (held-out responses, greedy "
          "chains); 2.85 in the last rollouts",
          "                      frozen after step 1: 1.50 -> 1.40; trained further: 4.80",
          "  lossless            16/16 responses bit-identical without speculation",
          "  regime              16 sequences per worker, 0.8 times the ridge of 20 token rows",
          "                      workers at most half full in 50 % of rollout time, last tenth of "
          "the responses 25 %",
          "                      rollouts about 1.75 times as fast as without speculation",
          "  idle workers        20 % of rollout time; 75 % of it used to train the draft model",
          "  time                rollout 22 %, update 44 %, validation 22 %, other 11 %", "  next",
          "    build/tlt generate --model runs/a/checkpoints/step_000002/policy --prompts "
          "runs/a/example_prompt.jsonl --output runs/a/example_answer.jsonl",
          "    build/tlt export drafter runs/a --target runs/a/checkpoints/step_000002/policy "
          "--format vllm --out runs/a/drafter_vllm",
          "    tensorboard --logdir runs/a/tensorboard"));
}

TEST(RunSummaryTest, AveragesTrainingScoresOverFiveSteps) {
  std::string rows;
  for (int step = 1; step <= 12; ++step)
    rows += "{\"step\":" + std::to_string(step) +
            ",\"critic/score/mean\":" + std::to_string(step % 2 == 0 ? 0.5 : 0.25) + "}\n";
  EXPECT_THAT(
      summary_of(rows, {}),
      Contains("  training score      0.350 ± 0.061 -> 0.400 ± 0.061   (means of 5 steps)"));
}

TEST(RunSummaryTest, SummarizesSupervisedFineTuning) {
  const std::string rows =
      R"({"step":0,"main/validation_loss":2.5,"val/perplexity":12.182})"
      "\n"
      R"({"step":1,"main/loss":2.25,"timing_s/step":3})"
      "\n"
      R"({"step":2,"main/loss":0.75,"main/validation_loss":0.5,"val/perplexity":1.649,)"
      R"("timing_s/step":2,"timing_s/testing":1})"
      "\n"
      R"({"step":3,"main/loss":0.5,"main/validation_loss":0.625,"val/perplexity":1.868})"
      "\n";
  EXPECT_THAT(summary_of(rows, {.folder = "runs/a",
                                .program = "build/tlt",
                                .result = "runs/a/policy",
                                .policy = "runs/a/policy"}),
              ElementsAre("Run summary (3 steps, 6 s)    runs/a",
                          "  held-out loss       2.5000 -> 0.6250   (best 0.5000 at step 2)",
                          "  perplexity          12.182 -> 1.868",
                          "  training loss       2.250 -> 0.500   (means of 1 step)",
                          "  result              runs/a/policy", "  next",
                          "    build/tlt generate --model runs/a/policy --prompts "
                          "runs/a/example_prompt.jsonl --output runs/a/example_answer.jsonl"));
}

TEST(RunSummaryTest, SummarizesADraftModelWarmUp) {
  const std::string row =
      R"({"step":0,"val-drafter/mean_acceptance_length":1.02,"val-drafter/top1_accuracy":0.1})"
      "\n"
      R"({"step":9,"val-drafter/mean_acceptance_length":3.9,"val-drafter/top1_accuracy":0.865})"
      "\n";
  EXPECT_THAT(summary_of(row, {.folder = "runs/d",
                               .result = "runs/d/drafter",
                               .policy = "qwen",
                               .drafter = "runs/d/drafter",
                               .has_drafter = true}),
              ElementsAre("Run summary (0 steps, 0 s)    runs/d",
                          "  draft model         acceptance length 1.02 -> 3.90, top-1 accuracy "
                          "0.100 -> 0.865 (held-out responses, greedy chains)",
                          "  result              runs/d/drafter", "  next",
                          "    tlt generate --model qwen --speculation eagle --drafter "
                          "runs/d/drafter --prompts runs/d/example_prompt.jsonl --output "
                          "runs/d/example_answer.jsonl",
                          "    tlt export drafter runs/d --target qwen --format vllm --out "
                          "runs/d/drafter_vllm"));
}

TEST(RunSummaryTest, CountsFailedRewards) {
  EXPECT_THAT(
      summary_of(R"({"step":1,"critic/score/mean":0,"reward/unscored":32,"rollout/responses":32})"
                 "\n",
                 {}),
      Contains("  failed rewards      32 of 32 (100 %); log.txt has the reason"));
}

TEST(RunSummaryTest, LeavesOutLinesWithoutData) {
  EXPECT_THAT(summary_of("{\"step\":1}\n", {.folder = "runs/a"}),
              ElementsAre("Run summary (0 steps, 0 s)    runs/a"));
}

TEST(RunSummaryTest, ReportsADifferenceAsABug) {
  EXPECT_THAT(
      summary_of("{\"step\":1}\n", {.folder = "runs/a", .replayed = 8, .equal = 7}),
      Contains(HasSubstr("7/8 responses bit-identical without speculation; this is a bug")));
}

TEST(RunSummaryTest, NamesTheReport) {
  EXPECT_THAT(summary_of("{\"step\":1}\n", {.folder = "runs/a", .report = "runs/a/report.html"}),
              Contains("  report              runs/a/report.html"));
}

TEST(RunSummaryTest, ADamagedRowIsLeftOut) {
  EXPECT_THAT(summary_of("{\"step\":1,\"critic/score/mean\":0.5}\n{\"step\":\n", {}),
              Contains(HasSubstr("0.500")));
}

TEST(RunSummaryTest, QuotesCommandsForTheShell) {
  EXPECT_THAT(
      summary_of("{\"step\":1}\n", {.folder = "my runs/it's", .policy = "my runs/it's/policy"}),
      Contains(HasSubstr(R"(--model 'my runs/it'\''s/policy')")));
}

}  // namespace
}  // namespace tlt::run
