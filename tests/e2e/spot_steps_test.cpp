// Which steps of a whole run train the draft model, and on which samples. docs/paper_map.md
// lists the differences from FastRL's spot trainer.
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

// A run of one worker, which trains the draft model after each rollout.
class DraftTrainingStepsTest : public ::testing::Test {
 protected:
  void run(int steps, std::vector<std::string> options) {
    options.push_back("trainer.threads=1");
    options.push_back("speculative.train.gap_share=0.5");
    options.push_back(tests::kDemoModel);  // rollouts long enough to train after each
    ASSERT_EQ(tests::run_program(small_run(scratch_ / "run", steps, 1, options), scratch_ / "log"),
              0)
        << read_text(scratch_ / "log");
  }
  // The metric's value in each step.
  std::vector<double> metric(const std::string& name) const {
    std::ifstream file(scratch_ / "run/metrics.jsonl");
    std::vector<double> values;
    for (std::string line; std::getline(file, line);)
      values.push_back(nlohmann::json::parse(line).value(name, 0.0));
    return values;
  }

  const Scratch scratch_;
};

// FastRL's collection looked up the drafter in the wrong place and failed silently.
TEST_F(DraftTrainingStepsTest, RolloutsAreCollectedAndTrainedOn) {
  run(2, {});
  EXPECT_THAT(metric("drafter/collected_samples"), ElementsAre(16, 32));
  EXPECT_THAT(metric("drafter/tokens"), Each(Gt(0)));
  EXPECT_THAT(metric("drafter/trained"), ElementsAre(1, 1));
  EXPECT_THAT(metric("drafter/workers_off"), ElementsAre(0, 0));
  EXPECT_THAT(read_text(scratch_ / "log"), Not(::testing::HasSubstr("failed")));
}

// FastRL's step counter stayed 0, so every step trained, and no step collected unless the
// interval was 1.
TEST_F(DraftTrainingStepsTest, IntervalTriggerCollectsEveryStep) {
  run(5, {"speculative.train.training_interval_steps=2"});
  EXPECT_THAT(metric("drafter/trained"), ElementsAre(1, 0, 1, 0, 1));
  EXPECT_THAT(metric("drafter/collected_samples"), ElementsAre(16, 32, 32, 32, 32));
}

// A frozen copy of the draft model is measured next to the trained one, also in steps without
// training, and is the same copy after the run was resumed.
TEST_F(DraftTrainingStepsTest, FrozenDraftModelIsMeasuredToo) {
  const std::vector<std::string> options = {
      "speculative.train.frozen_after_steps=1", "speculative.train.training_interval_steps=3",
      "speculative.train.optim.lr=0.01", "speculative.train.save_buffer=true",
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

// frozen_after_steps=0 compares with the initial random weights, whose drafts are not accepted.
TEST_F(DraftTrainingStepsTest, InitialDraftModelMayBeTheFrozenOne) {
  run(2, {"speculative.train.frozen_after_steps=0", "speculative.train.optim.lr=0.01"});
  const std::vector<double> before = metric("drafter/top1_accuracy/before"),
                            after = metric("drafter/top1_accuracy/after"),
                            frozen = metric("drafter/top1_accuracy/frozen");
  EXPECT_EQ(frozen[0], before[0]) << "nothing is learned yet";
  EXPECT_GT(after[0], frozen[0]);
}

// Only FastRL's single-turn rollouts reported to the coordinator. Here all generation batches
// of a step are collected.
TEST_F(DraftTrainingStepsTest, EveryGenerationBatchIsCollected) {
  run(2, tests::with_dynamic_sampling());
  const std::vector<double> batches = metric("train/num_gen_batches");
  EXPECT_GT(std::accumulate(batches.begin(), batches.end(), 0.0), 2);
  EXPECT_THAT(metric("drafter/collected_samples"),
              ElementsAre(12 * batches[0], 12 * (batches[0] + batches[1])));
  EXPECT_THAT(metric("drafter/trained"), ElementsAre(1, 1));
}

}  // namespace
}  // namespace tlt
