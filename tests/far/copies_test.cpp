// Copies between host and device in a step of the engine: one to the device, the batch, and one back,
// 12 bytes for each row that is sampled from, whatever the layers, sequences and draft trees. So a
// forward pass has none, which a graph of it requires.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "model/activations.h"
#include "model/tape.h"
#include "rollout/engine.h"
#include "rollout/speculation.h"
#include "tests/support/far_device.h"
#include "tests/support/oracle_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/tiny_model.h"

namespace tlt::tests {
namespace {

constexpr int64_t kTreeRows = 16;

struct Copies {
  int64_t uploads = 0, downloads = 0, synchronizations = 0;
  bool operator==(const Copies&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Copies& copies) {
  return out << copies.uploads << " up, " << copies.downloads << " down, "
             << copies.synchronizations << " synchronizations";
}

Copies copies() {
  const FarCounts& now = far_counts();
  return {now.uploads, now.downloads, now.synchronizations};
}

Copies since(const Copies& before) {
  const Copies now = copies();
  return {now.uploads - before.uploads, now.downloads - before.downloads,
          now.synchronizations - before.synchronizations};
}

class FarCopiesTest : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {
 protected:
  int64_t layers() const { return std::get<0>(GetParam()); }
  int64_t sequences() const { return std::get<1>(GetParam()); }

  std::unique_ptr<model::PolicyModel> make_model(const Device& device) const {
    model::ModelConfig config = tiny_config(model::Family::kQwen3);
    config.layers = layers();
    return make_tiny_model(config, at::kBFloat16, device);
  }

  std::vector<rollout::Group> groups() const {
    rollout::SamplingOptions sampling;
    sampling.max_new_tokens = 12;
    sampling.ignore_eos = true;
    const auto shared = std::make_shared<const rollout::SamplingOptions>(sampling);
    std::vector<rollout::Group> groups;
    for (uint32_t prompt = 0; prompt < sequences(); ++prompt)
      groups.push_back({.prompt_id = prompt,
                        .tokens = random_tokens(3, prompt, 1 + prompt % 20, 100),
                        .sampling = shared});
    return groups;
  }

  rollout::EngineOptions options() const {
    return {.max_running = sequences(), .max_batch_tokens = 1200, .prefill_chunk = 1200};
  }

  // Runs all groups; expects the same copies in every step after the first, and results of at most
  // `rows` rows for each sequence.
  void expect_copies(rollout::Engine& engine, int64_t rows) const {
    for (const rollout::Group& group : groups()) engine.submit(group);
    const Copies want{.uploads = 1, .downloads = 1};
    ASSERT_TRUE(engine.step()) << "makes the table of angles";
    int64_t steps = 0;
    int64_t bytes = far_counts().downloaded_bytes;
    for (Copies before = copies(); engine.step(); before = copies(), ++steps) {
      EXPECT_EQ(since(before), want) << "step " << steps;
      EXPECT_LE(far_counts().downloaded_bytes - bytes, 12 * rows * sequences()) << "step " << steps;
      bytes = far_counts().downloaded_bytes;
    }
    EXPECT_GT(steps, 2);
    EXPECT_EQ(engine.take_finished().size(), groups().size());
  }
};

TEST_P(FarCopiesTest, OfAStepWithoutSpeculation) {
  const auto model = make_model(Device::parse("far", 1));
  rollout::Engine engine(*model, options());
  expect_copies(engine, /*rows=*/1);
}

TEST_P(FarCopiesTest, OfAStepWithTrees) {
  const auto here = make_model(Device::cpu(1)), model = make_model(Device::parse("far", 1));
  rollout::Engine plain(*here, options());
  const Rollouts known = run(plain, groups());
  rollout::Speculation speculation(
      std::make_unique<OracleDrafter>(known, 100, /*acceptance=*/0.7, 1),
      drafter::Strategy{8, 4, kTreeRows}, 100);
  rollout::Engine engine(*model, options(), nullptr, nullptr, &speculation);
  expect_copies(engine, /*rows=*/kTreeRows + 1);
  EXPECT_GT(speculation.stats().accepted_tokens, 0);
  EXPECT_FALSE(speculation.stats().failed);
}

TEST_P(FarCopiesTest, OfAForwardPassOnlyItsBatch) {
  const auto model = make_model(Device::parse("far", 1));
  kv::KvCache cache(model->device(), model->kv_shape(), 2 * sequences());
  model::Activations activations(*model, kTreeRows * sequences());
  std::vector<ops::PageId> pages(static_cast<size_t>(2 * sequences()));
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<ops::PageId>(i);
  ops::Batch batch;
  for (int64_t i = 0; i < sequences(); ++i) {
    batch.add_tree(3, /*position=*/5, &pages[static_cast<size_t>(2 * i)]);
    for (int32_t node = 1; node < kTreeRows; ++node) batch.add_node(node, 1 + node % 2);
  }
  model->forward(batch, cache, activations);  // makes the table of angles
  const Copies before = copies();
  model->forward(batch, cache, activations);
  EXPECT_EQ(since(before), (Copies{.uploads = 1}));
}

// Backward needs the tokens once more, for the gradient of the embedding.
TEST_P(FarCopiesTest, OfATrainingPassOnlyItsBatch) {
  const auto model = make_model(Device::parse("far", 1));
  model::Gradients gradients = model->make_gradients();
  for (const bool recompute : {false, true}) {
    model::Tape tape(*model, recompute);
    for (uint32_t i = 0; i < sequences(); ++i) {
      const std::vector<int32_t> tokens = random_tokens(1, i, 20, 100);
      tape.add_sequence(tokens.data(), 20);
    }
    model->forward(tape);  // makes the table of angles
    Copies before = copies();
    const at::Tensor d_hidden = at::ones_like(model->forward(tape));
    EXPECT_EQ(since(before), (Copies{.uploads = 1}));
    before = copies();
    model->backward(tape, d_hidden, gradients);
    EXPECT_EQ(since(before), (Copies{.uploads = 1}));
  }
}

// One launch for all rows: the operations of a decode step depend on the layers only.
TEST(FarLaunchesTest, OfADecodeStepDoNotGrowWithTheBatch) {
  const auto operations = [](int64_t layers, int64_t sequences) {
    model::ModelConfig config = tiny_config(model::Family::kQwen3);
    config.layers = layers;
    const auto model = make_tiny_model(config, at::kBFloat16, Device::parse("far", 1));
    rollout::Engine engine(*model, {.max_running = sequences, .max_batch_tokens = 1200});
    rollout::SamplingOptions sampling;
    sampling.max_new_tokens = 6;
    sampling.ignore_eos = true;
    for (uint32_t prompt = 0; prompt < sequences; ++prompt)
      engine.submit({.prompt_id = prompt,
                     .tokens = random_tokens(3, prompt, 1 + prompt % 20, 100),
                     .sampling = std::make_shared<const rollout::SamplingOptions>(sampling)});
    engine.step();
    engine.step();
    const int64_t before = far_counts().operations;
    engine.step();
    return far_counts().operations - before;
  };
  const int64_t of_one = operations(2, 1);
  EXPECT_GT(of_one, 2 * 5);
  EXPECT_EQ(operations(2, 64), of_one);
  EXPECT_EQ(operations(3, 64) - of_one, operations(4, 16) - operations(3, 16));
}

INSTANTIATE_TEST_SUITE_P(Sizes, FarCopiesTest,
                         ::testing::Combine(::testing::Values(2, 8), ::testing::Values(1, 16, 64)),
                         [](const auto& info) {
                           return "layers" + std::to_string(std::get<0>(info.param)) + "_batch" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tlt::tests
