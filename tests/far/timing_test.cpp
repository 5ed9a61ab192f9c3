// Timings are of the device's work, not of its launch: the tuner's costs and the engine's statistics
// on a device whose operations take long and that the host does not wait for.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/clock.h"
#include "drafter/eagle/draft_eagle.h"
#include "drafter/eagle/eagle_drafter.h"
#include "model/activations.h"
#include "rollout/cost_probe.h"
#include "rollout/engine.h"
#include "tests/support/far_device.h"
#include "tests/support/rollouts.h"
#include "tests/support/tiny_model.h"

namespace tlt::tests {
namespace {

constexpr double kOperationSeconds = 5e-4;  // a launch takes a hundredth of it

class FarTimingTest : public ::testing::Test {
 protected:
  FarTimingTest() : model_(make_tiny_model(config(), at::kFloat, Device::parse("far", 1))) {}
  ~FarTimingTest() override { set_far_seconds_per_operation(0); }

  static model::ModelConfig config() {
    model::ModelConfig config = tiny_config(model::Family::kQwen3);
    config.max_positions = 256;  // no long contexts
    return config;
  }

  // Of a forward pass with one row, without the LM head.
  int64_t operations_of_forward() const {
    kv::KvCache cache(model_->device(), model_->kv_shape(), 1);
    model::Activations activations(*model_, 1);
    const ops::PageId page = 0;
    const int32_t token = 3;
    ops::Batch batch;
    batch.add(&token, 1, 0, &page);
    const int64_t before = far_counts().operations;
    model_->forward(batch, cache, activations);
    return far_counts().operations - before;
  }

  const std::unique_ptr<model::PolicyModel> model_;
};

TEST_F(FarTimingTest, CostsOfForwardPassesAreOfWork) {
  const double least = 0.9 * kOperationSeconds * static_cast<double>(operations_of_forward());
  set_far_seconds_per_operation(kOperationSeconds);
  const auto costs =
      rollout::measure_forwards(*model_, {.max_sequences = 1, .max_rows = 2, .seconds = 0});
  ASSERT_FALSE(costs.empty());
  for (const speculation::ForwardCost& cost : costs) EXPECT_GE(cost.seconds, least) << cost.rows;
}

TEST_F(FarTimingTest, ForwardAndSampleSecondsOfTheEngineAreOfWork) {
  rollout::Engine engine(*model_, {.max_running = 2, .max_batch_tokens = 8, .prefill_chunk = 4});
  rollout::SamplingOptions sampling;
  sampling.max_new_tokens = 4;
  sampling.ignore_eos = true;
  const rollout::Group group{
      .prompt_id = 1,
      .tokens = {5, 6, 7, 8, 9, 10},
      .sampling = std::make_shared<const rollout::SamplingOptions>(sampling)};
  const double least = 0.9 * kOperationSeconds * static_cast<double>(operations_of_forward());
  set_far_seconds_per_operation(kOperationSeconds);
  const Stopwatch watch;
  run(engine, {group});
  const double all = watch.seconds();
  const rollout::EngineStats stats = engine.stats();
  EXPECT_EQ(stats.steps, 5) << "a step without samples, then four";
  EXPECT_GE(stats.forward_seconds, least * static_cast<double>(stats.steps));
  EXPECT_LE(stats.forward_seconds + stats.sample_seconds + stats.schedule_seconds, all * 1.01);
}

TEST_F(FarTimingTest, ForwardSecondsOfADrafterAreOfWork) {
  drafter::EagleNetwork network(*model_, drafter::EagleNetwork::config_for(model_->config()));
  network.initialize(1);
  set_far_seconds_per_operation(kOperationSeconds);
  const auto costs = rollout::measure_drafts(network, std::vector{drafter::Strategy{3, 2, 6}},
                                             {.max_sequences = 1, .max_rows = 8, .seconds = 0});
  ASSERT_FALSE(costs.empty());
  // Three passes of one layer.
  EXPECT_GE(costs[0].seconds,
            0.9 * kOperationSeconds * static_cast<double>(operations_of_forward()));

  drafter::EagleDrafter drafter(network, {});
  const at::Tensor states = network.device().zeros({8, network.feature_columns()}, network.type());
  const std::vector<int32_t> prompt(8, 3), response = {4};
  const std::vector<double> uniforms(3, 0.5);
  drafter.read_prompt(1, 0, states, prompt);
  drafter.read_states({1, 0}, 0, states, std::vector<int32_t>{0});
  drafter::DraftTree tree;
  const std::vector<drafter::DraftRequest> requests = {{.id = {1, 0},
                                                        .prompt = prompt,
                                                        .response = response,
                                                        .strategy = {3, 2, 6},
                                                        .tree = &tree,
                                                        .draws = {uniforms, {}}}};
  network.device().synchronize();
  const Stopwatch watch;
  drafter.propose(requests);
  EXPECT_GT(drafter.forward_seconds(), watch.seconds() / 2);
}

}  // namespace
}  // namespace tlt::tests
