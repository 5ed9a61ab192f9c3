// SPDX-License-Identifier: Apache-2.0
#include "rollout/cost_probe.h"

#include <gtest/gtest.h>

#include <set>

#include "model/draft_eagle.h"
#include "rollout/make_speculation.h"
#include "tests/support/tiny_model.h"

namespace tlt::rollout {
namespace {

TEST(CostProbeTest, MeasuresEveryBatchSizeThatFitsAndMoreRowsForEach) {
  const auto model =
      testing::make_tiny_model(testing::tiny_config(model::Family::kQwen2), at::kBFloat16);
  const auto costs =
      measure_forwards(*model, {.max_sequences = 12, .max_rows = 100, .seconds = 1e9});
  std::set<std::pair<int64_t, int64_t>> measured;
  for (const spec::ForwardCost& cost : costs) {
    EXPECT_GT(cost.seconds, 0);
    EXPECT_LE(cost.rows, 100);
    measured.insert({cost.batch, cost.rows});
  }
  EXPECT_EQ(measured.size(), costs.size());
  for (const int64_t batch : {1, 2, 4, 8}) {
    EXPECT_TRUE(measured.contains({batch, batch}));
    EXPECT_TRUE(measured.contains({batch, 8 * batch})) << "a line needs a second point";
  }
  EXPECT_EQ(measured.rbegin()->first, 8);
}

TEST(CostProbeTest, StopsAtABatchSizeWhenItsTimeIsUp) {
  const auto model =
      testing::make_tiny_model(testing::tiny_config(model::Family::kLlama), at::kFloat);
  const auto costs = measure_forwards(*model, {.max_sequences = 64, .max_rows = 64, .seconds = 0});
  EXPECT_EQ(costs.size(), 7u) << "1, 2 … 64 rows of one sequence";
}

TEST(CostProbeTest, ProposalsOfADeepTreeCostMoreThanOfAShallowOne) {
  const auto model =
      testing::make_tiny_model(testing::tiny_config(model::Family::kQwen2), at::kBFloat16);
  model::EagleNetwork network(*model, model::EagleNetwork::config_for(model->config()));
  network.initialize(1);
  const std::vector<spec::Strategy> strategies = {{1, 1, 2}, {8, 4, 16}};
  const auto costs =
      measure_drafts(network, strategies, {.max_sequences = 2, .max_rows = 64, .seconds = 1e9});
  ASSERT_EQ(costs.size(), 4u);
  for (size_t i = 0; i < 4; i += 2) EXPECT_LT(costs[i].seconds, costs[i + 1].seconds);
}

TEST(MakeSpeculationTest, StrategiesThatCanNeverBeVerifiedAreRefused) {
  const auto model =
      testing::make_tiny_model(testing::tiny_config(model::Family::kQwen2), at::kFloat);
  spec::SpeculationOptions options;
  EngineOptions engine;
  engine.max_batch_tokens = engine.max_running = 40;
  EXPECT_THROW(make_speculation(options, *model, engine), InputError) << "8_4_48 has 48 rows";
  options.drafters = {"suffix"};
  EXPECT_THROW(make_speculation(options, *model, engine, {.strategy = spec::Strategy{8, 4, 41}}),
               InputError);
  EXPECT_NE(make_speculation(options, *model, engine, {.strategy = spec::Strategy{8, 4, 40}}),
            nullptr);
  engine.kv_memory_bytes = model->kv_shape().page_bytes();
  EXPECT_THROW(make_speculation(options, *model, engine, {.strategy = spec::Strategy{16, 4, 20}}),
               InputError);
  options.enable = false;
  EXPECT_EQ(make_speculation(options, *model, engine), nullptr);
  options.enable = true;
  options.drafters = {"eagle"};
  EXPECT_EQ(make_speculation(options, *model, engine), nullptr) << "no network";
}

}  // namespace
}  // namespace tlt::rollout
