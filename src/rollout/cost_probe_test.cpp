// SPDX-License-Identifier: Apache-2.0
#include "rollout/cost_probe.h"

#include <gtest/gtest.h>

#include <set>

#include "base/clock.h"
#include "drafter/eagle/draft_eagle.h"
#include "rollout/make_speculation.h"
#include "tests/support/tiny_model.h"

namespace tlt::rollout {
namespace {

TEST(CostProbeTest, MeasuresEveryBatchSizeWithSeveralRowCounts) {
  const auto model =
      tests::make_tiny_model(tests::tiny_config(model::Family::kQwen2), at::kBFloat16);
  const auto costs =
      measure_forwards(*model, {.max_sequences = 12, .max_rows = 100, .seconds = 1e9});
  std::set<std::pair<int64_t, int64_t>> measured;
  for (const speculation::ForwardCost& cost : costs) {
    EXPECT_GT(cost.seconds, 0);
    EXPECT_LE(cost.rows, 100);
    measured.insert({cost.batch, cost.rows});
  }
  EXPECT_EQ(measured.size(), costs.size());
  for (const int64_t batch : {1, 2, 4, 8}) {
    EXPECT_TRUE(measured.contains({batch, batch}));
    EXPECT_TRUE(measured.contains({batch, 18})) << "also where trees cannot be equally large";
    EXPECT_TRUE(measured.contains({batch, 13})) << "a row more than whole blocks";
  }
  EXPECT_EQ(measured.rbegin()->first, 8);
}

// Non-speculative steps and trees, at batch sizes that are also measured with short contexts.
TEST(CostProbeTest, MeasuresLongContextsIfTheModelHasPositions) {
  model::ModelConfig config = tests::tiny_config(model::Family::kQwen2);
  for (const int64_t positions : {1024, 2048}) {
    config.max_positions = positions;
    const auto model = tests::make_tiny_model(config, at::kBFloat16);
    const auto costs =
        measure_forwards(*model, {.max_sequences = 5, .max_rows = 40, .seconds = 1e9});
    std::set<std::pair<int64_t, int64_t>> long_context;
    for (const speculation::ForwardCost& cost : costs) {
      EXPECT_LE(cost.rows, 40);
      EXPECT_LT(cost.context, positions);
      if (cost.context > 128) long_context.insert({cost.batch, cost.rows});
    }
    using Passes = std::set<std::pair<int64_t, int64_t>>;
    EXPECT_EQ(long_context,
              positions == 1024 ? Passes{} : (Passes{{1, 1}, {1, 4}, {1, 16}, {4, 4}, {4, 16}}));
    const speculation::CostTable table(costs, {});
    const double times = table.target_seconds(4, 4, 1024) / table.target_seconds(4, 4, 128);
    if (positions == 1024)
      EXPECT_EQ(times, 1);
    else
      EXPECT_GT(times, 1.2);
  }
}

TEST(CostProbeTest, StopsAtABatchSizeWhenTimeIsUp) {
  const auto model = tests::make_tiny_model(tests::tiny_config(model::Family::kLlama), at::kFloat);
  const auto costs = measure_forwards(*model, {.max_sequences = 64, .max_rows = 64, .seconds = 0});
  EXPECT_EQ(costs.size(), 13u) << "1, 2, 4, 6, 7 … 64 rows of one sequence";
}

TEST(CostProbeTest, DeepTreesCostMoreToPropose) {
  const auto model =
      tests::make_tiny_model(tests::tiny_config(model::Family::kQwen2), at::kBFloat16);
  drafter::EagleNetwork network(*model, drafter::EagleNetwork::config_for(model->config()));
  network.initialize(1);
  const std::vector<drafter::Strategy> strategies = {{1, 1, 2}, {8, 4, 16}};
  const auto costs =
      measure_drafts(network, strategies, {.max_sequences = 2, .max_rows = 64, .seconds = 1e9});
  ASSERT_EQ(costs.size(), 4u);
  for (size_t i = 0; i < 4; i += 2) EXPECT_LT(costs[i].seconds, costs[i + 1].seconds);
}

// A machine that is five times as slow during a burst in the middle of a probe.
struct NoisyMachine {
  explicit NoisyMachine(double begin) : burst_begin(begin), burst_end(begin + 0.2) {}

  FakeClock clock;
  const double burst_begin, burst_end;

  double run(double seconds) {
    const double now = clock.seconds();
    const double took = seconds * (now >= burst_begin && now < burst_end ? 5 : 1);
    clock.advance(took);
    return took;
  }
};

TEST(CostProbeTest, NoiseBurstsDoNotAffectTheMinimum) {
  std::vector<double> truth;
  for (int i = 0; i < 20; ++i) truth.push_back(1e-3 * (1 + i));  // 0.21 s for all of them
  int spoiled = 0;
  for (double begin = 0; begin < 0.6; begin += 0.01) {
    NoisyMachine machine(begin);
    const auto run = [&](size_t task) { return machine.run(truth[task]); };
    const std::vector<double> least = measure_interleaved(truth.size(), /*seconds=*/0.5, run);
    for (size_t i = 0; i < truth.size(); ++i) EXPECT_DOUBLE_EQ(least[i], truth[i]) << begin;
    // Without interleaving, bursts affect some minima.
    NoisyMachine other(begin);
    for (const double seconds : truth) {
      double best = 1e9;
      for (int repeat = 0; repeat < 3; ++repeat) best = std::min(best, other.run(seconds));
      spoiled += best > 2 * seconds ? 1 : 0;
    }
  }
  EXPECT_GT(spoiled, 30);
}

TEST(CostProbeTest, RoundsRepeatUntilTheTimeIsUp) {
  int64_t runs = 0;
  const auto counted = [&](double seconds) {
    runs = 0;
    measure_interleaved(2, seconds, [&](size_t) { return ++runs, 0.125; });
    return runs;
  };
  EXPECT_EQ(counted(0), 2 * 3);
  EXPECT_EQ(counted(1), 2 * 4);
  EXPECT_EQ(counted(100), 2 * 12);
}

TEST(CostProbeTest, MoreRowsNeverCostLess) {
  std::vector<speculation::ForwardCost> costs = {{1, 1, 1},   {1, 2, 9},      {1, 4, 3},
                                                 {1, 8, 2},   {1, 16, 5},     {2, 2, 0.5},
                                                 {2, 4, 0.6}, {2, 2, 0.55, 9}};
  make_monotone(costs);
  std::vector<double> seconds;
  for (const speculation::ForwardCost& cost : costs) seconds.push_back(cost.seconds);
  EXPECT_EQ(seconds, (std::vector<double>{1, 2, 2, 2, 5, 0.5, 0.6, 0.55}));
}

TEST(MakeSpeculationTest, StrategiesThatCanNeverBeVerifiedAreRefused) {
  const auto model = tests::make_tiny_model(tests::tiny_config(model::Family::kQwen2), at::kFloat);
  speculation::SpeculationOptions options;
  EngineOptions engine;
  engine.max_batch_tokens = engine.max_running = 40;
  EXPECT_THROW(make_speculation(options, *model, engine), InputError) << "8_4_48 has 48 rows";
  options.drafters = {"suffix"};
  EXPECT_THROW(make_speculation(options, *model, engine, {.strategy = drafter::Strategy{8, 4, 41}}),
               InputError);
  EXPECT_NE(make_speculation(options, *model, engine, {.strategy = drafter::Strategy{8, 4, 40}}),
            nullptr);
  engine.kv_memory_bytes = model->kv_shape().page_bytes();
  EXPECT_THROW(
      make_speculation(options, *model, engine, {.strategy = drafter::Strategy{16, 4, 20}}),
      InputError);
  options.enable = false;
  EXPECT_EQ(make_speculation(options, *model, engine), nullptr);
  options.enable = true;
  options.drafters = {"eagle"};
  EXPECT_EQ(make_speculation(options, *model, engine), nullptr) << "no draft model";
}

TEST(MakeSpeculationTest, MixedDraftersCompeteAloneOnlyIfNamed) {
  const auto model = tests::make_tiny_model(tests::tiny_config(model::Family::kQwen2), at::kFloat);
  const auto network = std::make_shared<drafter::EagleNetwork>(
      *model, drafter::EagleNetwork::config_for(model->config()));
  network->initialize(1);
  speculation::SpeculationOptions options;
  const EngineOptions engine;
  const auto costs = measure_costs(*model, network.get(), options, engine);
  const auto arms = [&](std::vector<std::string> drafters, bool has_network) {
    options.drafters = std::move(drafters);
    const auto speculation = make_speculation(
        options, *model, engine, {.network = has_network ? network : nullptr, .costs = costs});
    std::set<std::string> kinds;
    for (const speculation::Arm& arm : speculation->tuner()->arms()) kinds.insert(arm.kind);
    return kinds;
  };
  using Kinds = std::set<std::string>;
  EXPECT_EQ(arms({"mixed"}, true), (Kinds{"off", "mixed"}));
  EXPECT_EQ(arms({"suffix", "mixed"}, true), (Kinds{"off", "suffix", "mixed"}));
  EXPECT_EQ(arms({"suffix", "eagle", "mixed"}, true), (Kinds{"off", "suffix", "eagle", "mixed"}));
  EXPECT_EQ(arms({"suffix", "eagle", "mixed"}, false), (Kinds{"off", "suffix"}))
      << "mixed of one drafter";
  EXPECT_EQ(arms({"mixed"}, false), (Kinds{"off", "mixed"}));
  const drafter::Strategy strategy{4, 2, 6};
  EXPECT_GT(costs.draft_curve({"mixed", strategy}).at(1), 0);
  options.drafters = {"mixed"};
  const auto fixed =
      make_speculation(options, *model, engine, {.network = network, .strategy = strategy});
  EXPECT_EQ(fixed->arm(), (speculation::Arm{"mixed", strategy}));
}

}  // namespace
}  // namespace tlt::rollout
