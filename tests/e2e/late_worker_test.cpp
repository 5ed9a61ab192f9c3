// A worker that begins the rollouts of a step later than the others still has its own groups.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/support/breakpoint.h"
#include "tests/support/small_run.h"

namespace tlt {
namespace {

// Worker 0 has two of four groups. Worker 2 has one, like worker 1, and could take worker 1's in
// these milliseconds. All responses have the same length, so no worker needs a group earlier.
TEST(LateWorkerTest, KeepsItsGroups) {
  const tests::Breakpoint second_rollouts(
      {{tests::kUpdate, 1}, {"tlt::rl::RolloutPhase::roll_out(", 1}});
  if (!second_rollouts.can_set()) GTEST_SKIP() << tests::kNoBreakpoint;
  const tests::Scratch scratch;
  tests::Program program(tests::small_run(scratch / "run", 2, 3,
                                          {tests::kDemoModel, "rollout.ignore_eos=true",
                                           "data.max_response_length=1500", "trainer.threads=1"}),
                         scratch / "log");
  ASSERT_TRUE(second_rollouts.at(tests::wait_for_worker(program.pid(), 1), [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  })) << program.output();
  ASSERT_EQ(program.wait(), 0) << program.output();
  std::ifstream metrics(scratch / "run/metrics.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(metrics, line) && std::getline(metrics, line));
  const auto step = nlohmann::json::parse(line);
  EXPECT_LT(step.at("drafter/worker_1/idle_seconds").get<double>(),
            0.8 * step.at("timing_s/gen").get<double>())
      << step.dump(1);
}

}  // namespace
}  // namespace tlt
