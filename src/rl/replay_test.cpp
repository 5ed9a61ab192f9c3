// SPDX-License-Identifier: Apache-2.0
#include "rl/replay.h"

#include <gtest/gtest.h>

#include "drafter/suffix/suffix_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/tiny_model.h"

namespace tlt::rl {
namespace {

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() {
    auto sampling = std::make_shared<rollout::SamplingOptions>();
    sampling->max_new_tokens = 40;
    for (uint32_t i = 0; i < 3; ++i)
      groups_.push_back({.prompt_id = i,
                         .tokens = tests::random_tokens(1, i, 9, config_.vocabulary),
                         .samples = 2,
                         .sampling = sampling});
  }

  const model::ModelConfig config_ = tests::tiny_config(model::Family::kQwen2);
  const std::unique_ptr<model::PolicyModel> model_ = tests::make_tiny_model(config_, at::kFloat);
  std::vector<rollout::Group> groups_;
  rollout::Speculation speculation_{
      std::make_unique<drafter::SuffixDrafter>(drafter::SuffixOptions{}),
      drafter::parse_strategy("4_2_8"), config_.vocabulary};
  const rollout::EngineOptions options_;
  rollout::Engine engine_{*model_, options_, nullptr, nullptr, &speculation_};
};

TEST_F(ReplayTest, ComparesEveryResponse) {
  ReplayEngines engines(engine_, speculation_, {*model_, options_}, groups_);
  const Replay same = engines.compare();
  EXPECT_EQ(same.responses, 12);
  EXPECT_EQ(same.equal, 12);
  EXPECT_GT(speculation_.stats().trees, 0);
  // Another model's responses.
  const auto other = tests::make_tiny_model(config_, at::kFloat, Device::cpu(1), /*seed=*/12);
  EXPECT_LT(ReplayEngines(engine_, speculation_, {*other, options_}, groups_).compare().equal, 12);
}

TEST_F(ReplayTest, MeasuresEachSizeWithinItsTime) {
  ReplayEngines engines(engine_, speculation_, {*model_, options_}, groups_);
  const Stopwatch watch;
  const std::vector<run::SpeedupRounds> sizes = engines.measure(groups_, /*seconds=*/0.4);
  EXPECT_LT(watch.seconds(), 20);  // the machine may be busy
  ASSERT_GE(sizes.size(), 1u);
  EXPECT_LE(sizes.size(), 2u) << "1 and 2; no memory for 4";
  EXPECT_EQ(sizes[0].sequences, 1);
  EXPECT_GT(sizes[0].ratios.size(), 0u);
  EXPECT_GT(sizes[0].speculative_step_share, 0);
  rollout::EngineOptions one;
  one.max_running = 1;
  EXPECT_EQ(ReplayEngines(engine_, speculation_, {*model_, one}, groups_)
                .measure(groups_, /*seconds=*/0.1)
                .size(),
            1u);
}

}  // namespace
}  // namespace tlt::rl
