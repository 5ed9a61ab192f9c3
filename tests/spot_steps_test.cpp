// Of a whole run: in which steps the drafter is trained, and what it is trained on. What
// FastRL's spot trainer does instead is in docs/paper_map.md.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/support/small_run.h"

namespace tlt {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using tests::read_text;
using tests::Scratch;
using tests::small_run;

// A run of one worker, whose drafter is trained behind each rollout.
class SpotStepsTest : public ::testing::Test {
 protected:
  void run(int steps, std::vector<std::string> options) {
    options.push_back("trainer.threads=1");
    options.push_back("speculative.train.gap_share=0.5");
    ASSERT_EQ(tests::run_program(small_run(scratch_ / "run", steps, 1, options), scratch_ / "log"),
              0)
        << read_text(scratch_ / "log");
  }
  // A number of each step.
  std::vector<double> metric(const std::string& name) const {
    std::ifstream file(scratch_ / "run/metrics.jsonl");
    std::vector<double> values;
    for (std::string line; std::getline(file, line);)
      values.push_back(nlohmann::json::parse(line).value(name, 0.0));
    return values;
  }

  const Scratch scratch_;
};

// S3: there the collecting looked for the drafter in the wrong place and gave up without a word.
TEST_F(SpotStepsTest, WhatIsRolledOutIsCollectedAndLearned) {
  run(2, {});
  EXPECT_THAT(metric("drafter/collected_samples"), ElementsAre(16, 32));
  EXPECT_THAT(metric("drafter/tokens"), Each(Gt(0)));
  EXPECT_THAT(metric("drafter/trained"), ElementsAre(1, 1));
  EXPECT_THAT(metric("drafter/workers_off"), ElementsAre(0, 0));
  EXPECT_THAT(read_text(scratch_ / "log"), Not(::testing::HasSubstr("failed")));
}

// S4: there the count of steps stayed 0, so every step was one to train in, and none was one to
// collect in but with an interval of 1.
TEST_F(SpotStepsTest, WithAnIntervalEveryStepIsCollectedAndOneInSoManyIsTrainedIn) {
  run(5, {"speculative.train.trigger=interval", "speculative.train.training_interval_steps=2"});
  EXPECT_THAT(metric("drafter/trained"), ElementsAre(1, 0, 1, 0, 1));
  EXPECT_THAT(metric("drafter/collected_samples"), ElementsAre(16, 32, 32, 32, 32));
}

// A draft model that stays as it was after some training steps is measured next to the one that
// is trained, in steps without training too, and is the same one after the run was resumed.
TEST_F(SpotStepsTest, AFrozenDrafterIsMeasuredToo) {
  const std::vector<std::string> options = {"speculative.train.compare_frozen=true",
                                            "speculative.train.frozen_after_steps=1",
                                            "speculative.train.trigger=interval",
                                            "speculative.train.training_interval_steps=3",
                                            "speculative.train.optim.lr=0.01",
                                            "speculative.train.save_buffer=true",
                                            "trainer.save_freq=2"};
  run(5, options);
  const std::vector<double> before = metric("drafter/top1_accuracy/before"),
                            frozen = metric("drafter/top1_accuracy/frozen");
  EXPECT_THAT(metric("drafter/trained"), ElementsAre(1, 0, 0, 1, 0));
  EXPECT_EQ(frozen[0], 0) << "it is taken at the end of the first training step";
  EXPECT_EQ(frozen[1], before[1]) << "nothing was learned since";
  EXPECT_EQ(frozen[3], before[3]);
  EXPECT_NE(frozen[4], before[4]);
  std::filesystem::remove_all(scratch_ / "run/checkpoints/step_000005");
  std::filesystem::remove_all(scratch_ / "run/checkpoints/step_000004");
  std::ofstream(scratch_ / "run/checkpoints/latest") << "step_000002\n";
  run(5, options);
  EXPECT_EQ(metric("drafter/top1_accuracy/frozen"), frozen);
}

// From random weights, which accept nothing, only where that is asked for.
TEST_F(SpotStepsTest, TheDrafterOfTheBeginningMayBeTheFrozenOne) {
  run(2, {"speculative.train.compare_frozen=true", "speculative.train.frozen_after_steps=0",
          "speculative.train.optim.lr=0.01"});
  const std::vector<double> before = metric("drafter/top1_accuracy/before"),
                            after = metric("drafter/top1_accuracy/after"),
                            frozen = metric("drafter/top1_accuracy/frozen");
  EXPECT_EQ(frozen[0], before[0]) << "nothing is learned yet";
  EXPECT_GT(after[0], frozen[0]);
}

// S6: there only one kind of rollout, the single-turn one, spoke with the coordinator. Here all
// generation batches of a step go the same way.
TEST_F(SpotStepsTest, EveryGenerationBatchOfDynamicSamplingIsCollected) {
  run(2, tests::with_dynamic_sampling());
  const std::vector<double> batches = metric("train/num_gen_batches");
  EXPECT_GT(std::accumulate(batches.begin(), batches.end(), 0.0), 2);
  EXPECT_THAT(metric("drafter/collected_samples"),
              ElementsAre(12 * batches[0], 12 * (batches[0] + batches[1])));
  EXPECT_THAT(metric("drafter/trained"), ElementsAre(1, 1));
}

}  // namespace
}  // namespace tlt
