// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/support/small_simulation.h"

namespace tlt::simulate {
namespace {

using tests::run_simulation;

constexpr double kNoticed = cluster::Coordinator::kGoneSeconds;

SimulateOptions three_steps() {
  SimulateOptions options = tests::small_simulation();
  options.total_training_steps = 3;
  return options;
}

// Equal responses, one at a time: a worker's groups of one follow each other.
SimulateOptions one_by_one() {
  SimulateOptions options = three_steps();
  options.n = options.max_num_seqs = options.total_training_steps = 1;
  options.workers = 3;
  options.train_batch_size = 6;
  options.lengths = "pareto:500,500";
  options.ways = {"plain"};
  return options;
}

double sum_of_parts(const StepReport& it) {
  return it.rollout + it.reward + it.exchange + it.logprobs + it.update + it.draft_gap + it.sync +
         it.checkpoint + it.regroup + it.restart;
}

double tokens_of(const SimulateOptions& options, int64_t step) {
  const Workload workload(options);
  double tokens = 0;
  for (int64_t group = 0; group < options.train_batch_size; ++group)
    for (int64_t i = 0; i < options.n; ++i)
      tokens += static_cast<double>(workload.length(step, group, i));
  return tokens;
}

// Every token is one of a response or wasted, every second of every worker decoding, idle or after
// its loss, whenever the workers are lost.
TEST(SimulationLossesTest, TokensAndSecondsAreConserved) {
  SimulateOptions options = three_steps();
  options.straggler_spread = 0.2;
  options.reward_seconds = 0.5;
  options.rejoin_seconds = 20;
  options.save_freq = 2;
  options.losses_per_worker_day = 3000;  // one in 29 seconds
  int64_t lost = 0, of_first = 0;
  for (const std::string way : {"plain", "static", "tlt", "tlt-early"})
    for (options.seed = 0; options.seed < 5; ++options.seed) {
      int64_t step = 0;
      for (const StepReport& report : run_simulation(options, way)) {
        const std::string place =
            way + ", seed " + std::to_string(options.seed) + ", step " + std::to_string(step);
        EXPECT_EQ(report.responses, 128) << place;
        EXPECT_NEAR(report.tokens, tokens_of(options, step), 1e-3) << place;
        EXPECT_NEAR(report.engines.tokens / (report.tokens + report.wasted_tokens), 1, 1e-6)
            << place;
        EXPECT_NEAR((report.decoding + report.idle + report.dead) / (4 * report.rollout), 1, 1e-6)
            << place;
        EXPECT_NEAR(report.engines.seconds / report.decoding, 1, 1e-9) << place;
        EXPECT_LE(report.draft_training + report.gradients, report.idle * (1 + 1e-9)) << place;
        EXPECT_GE(report.trained_tokens, -1e-6) << place;
        EXPECT_NEAR(sum_of_parts(report), report.seconds, 1e-6 * report.seconds) << place;
        ++step;
        lost += report.lost_workers;
        of_first += report.restart > 0;
      }
    }
  EXPECT_GT(lost, 50);
  EXPECT_GT(of_first, 5);
}

TEST(SimulationLossesTest, ALossThatNeverComesChangesNothing) {
  SimulateOptions options = three_steps();
  const auto whole = run_simulation(options, "tlt-early");
  options.lost_workers = {"2@1e9"};
  const auto same = run_simulation(options, "tlt-early");
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(whole[i].seconds, same[i].seconds);
}

// Six equal groups on three workers take two rounds. Worker 2 is lost in its first group: it is
// given to another one after its second.
TEST(SimulationLossesTest, OthersTakeOverTheGroupsOfALostWorker) {
  SimulateOptions options = one_by_one();
  const double one = run_simulation(options, "plain").at(0).rollout / 2;
  options.lost_workers = {"2@" + std::to_string(one / 2)};
  const StepReport report = run_simulation(options, "plain").at(0);
  EXPECT_EQ(report.lost_workers, 1);
  EXPECT_EQ(report.responses, 6);
  EXPECT_NEAR(report.wasted_tokens, 250, 8);
  EXPECT_NEAR(report.dead, report.rollout - one / 2, 1e-5);
  // Both groups of worker 2 are left when the others have done theirs, or when the loss is noticed.
  EXPECT_NEAR(report.rollout, one + std::max(2 * one, one / 2 + kNoticed), 0.02 * one);
  EXPECT_NEAR(report.regroup, options.regroup_seconds, 1e-9);
}

// It had finished a group, which is rolled out again in a round of its own.
TEST(SimulationLossesTest, FinishedGroupsOfALostWorkerAreRolledOutAgain) {
  SimulateOptions options = one_by_one();
  const double one = run_simulation(options, "plain").at(0).rollout / 2;
  options.lost_workers = {"2@" + std::to_string(1.5 * one)};
  const StepReport report = run_simulation(options, "plain").at(0);
  EXPECT_NEAR(report.wasted_tokens, 750, 8);
  EXPECT_NEAR(report.rollout, std::max(2 * one, 1.5 * one + kNoticed) + 2 * one, 0.02 * one);
  EXPECT_EQ(report.responses, 6);
}

TEST(SimulationLossesTest, APhaseAfterTheRolloutsIsRepeated) {
  SimulateOptions options = one_by_one();
  options.costs.train_efficiency = 1e-3;
  const StepReport whole = run_simulation(options, "plain").at(0);
  const double before = whole.seconds - whole.sync - whole.update / 2;
  options.lost_workers = {"1@" + std::to_string(before)};
  const StepReport report = run_simulation(options, "plain").at(0);
  EXPECT_EQ(report.wasted_tokens, 0);
  EXPECT_EQ(report.dead, 0);
  // Half of it, and then all of it with two workers.
  EXPECT_NEAR(report.update / whole.update, 0.5 + 1.5, 0.02);  // the optimizer's part is fixed
  EXPECT_NEAR(report.rollout, whole.rollout, 1e-9);
}

TEST(SimulationLossesTest, ALostWorkerMayJoinAgain) {
  SimulateOptions options = three_steps();
  const auto whole = run_simulation(options, "plain");
  options.lost_workers = {"3@1"};
  const auto three = run_simulation(options, "plain");
  options.rejoin_seconds = 1;
  const auto again = run_simulation(options, "plain");
  EXPECT_GT(three[1].dead, 0.99 * three[1].rollout);
  EXPECT_EQ(again[1].dead, 0);
  EXPECT_NEAR(again[1].rollout, whole[1].rollout, 1e-9);
  EXPECT_NEAR(again[1].regroup, options.regroup_seconds, 1e-9);
  EXPECT_GT(three[1].rollout, whole[1].rollout);
}

// Without worker 0: what was done since the last whole checkpoint is done twice.
TEST(SimulationLossesTest, WithoutWorkerZeroTheRunStartsAgain) {
  SimulateOptions options = three_steps();
  options.total_training_steps = 4;
  const auto whole = run_simulation(options, "plain");
  const double lost_at = whole[0].seconds + whole[1].seconds + 0.5 * whole[2].seconds;
  options.lost_workers = {"0@" + std::to_string(lost_at)};
  EXPECT_NEAR(run_simulation(options, "plain").at(2).restart, lost_at + options.restart_seconds,
              1e-4);
  options.save_freq = 1;
  options.disk_bandwidth = 1e15;
  const auto saved = run_simulation(options, "plain");
  const double copied = saved[0].checkpoint;
  EXPECT_GT(copied, 1);  // 107 GB over PCIe
  EXPECT_NEAR(saved[2].restart,
              lost_at - 2 * copied - whole[0].seconds - whole[1].seconds + options.restart_seconds,
              1e-3);
  EXPECT_EQ(saved[3].restart, 0);
}

TEST(SimulationLossesTest, WhatIfsHaveNoLosses) {
  SimulateOptions options = three_steps();
  options.lost_workers = {"1@5"};
  EXPECT_THROW(run_simulation(options, "plain+partial"), InputError);
  EXPECT_THROW(run_simulation(options, "tlt+one-step-off"), InputError);
}

}  // namespace
}  // namespace tlt::simulate
