// SPDX-License-Identifier: Apache-2.0
#include "rl/idle_report.h"

#include <gtest/gtest.h>

#include "tests/support/losing_comm.h"

namespace tlt::rl {
namespace {

using train::Loss;

// Every worker reports 10 idle seconds, of which it used 4, and the one after it a second more.
Metrics report(cluster::Comm& comm) {
  drafter_training::IdleStep step;
  step.idle.used_seconds = 4 + comm.rank();
  PhaseTimes times;
  times.idle_seconds = 10;
  Metrics metrics;
  report_idle_step(step, drafter_training::DraftBuffer({}), times, comm, metrics);
  return metrics;
}

TEST(IdleReportTest, SumsOverWorkersAndListsEach) {
  train::run_workers(2, [](cluster::Comm& comm) {
    const Metrics metrics = report(comm);
    EXPECT_EQ(metrics.at("drafter/idle_seconds"), 20);
    EXPECT_EQ(metrics.at("drafter/used_seconds"), 9);
    EXPECT_EQ(metrics.at("drafter/lost_seconds"), 11);
    EXPECT_EQ(metrics.at("drafter/worker_0/lost_seconds"), 6);
    EXPECT_EQ(metrics.at("drafter/worker_1/lost_seconds"), 5);
  });
}

// One that is lost after it has told its figures is listed, although the others then are fewer.
TEST(IdleReportTest, ALostWorkerIsListedIfItsFiguresCame) {
  for (const Loss loss : {Loss::kInCollective, Loss::kAfterSection})
    EXPECT_TRUE(train::run_losing_one(2, /*failing_call=*/1, loss, [&](cluster::Comm& comm) {
      const bool came = loss == Loss::kAfterSection;
      const Metrics metrics = report(comm);
      EXPECT_EQ(metrics.find("drafter/worker_1/idle_seconds").has_value(), came);
      EXPECT_EQ(metrics.at("drafter/idle_seconds"), came ? 20 : 10);
    }));
}

}  // namespace
}  // namespace tlt::rl
