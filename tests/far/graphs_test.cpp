// The engine with forward passes replayed from graphs, on a device whose graphs repeat the recorded
// operations on the recorded memory: the tokens are those of passes that are launched directly.
//
// SPDX-License-Identifier: Apache-2.0
#include "rollout/graph_cache.h"

#include <gtest/gtest.h>

#include "model/activations.h"
#include "ops/padded_rows.h"
#include "rollout/speculation.h"
#include "tests/support/far_device.h"
#include "tests/support/oracle_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/tiny_model.h"

namespace tlt::tests {
namespace {

class FarGraphsTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  static constexpr int64_t kVocabulary = 100;

  static std::vector<rollout::Group> groups() {
    std::vector<rollout::Group> groups;
    for (uint32_t prompt = 0; prompt < 6; ++prompt) {
      rollout::SamplingOptions sampling;
      sampling.temperature = prompt % 2;
      sampling.max_new_tokens = 10 + 8 * prompt;
      sampling.ignore_eos = true;
      groups.push_back({.prompt_id = prompt,
                        .tokens = random_tokens(3, prompt, 1 + 9 * prompt, kVocabulary),
                        .samples = 2,
                        .sampling = std::make_shared<const rollout::SamplingOptions>(sampling),
                        .seed = 5});
    }
    return groups;
  }

  // Large enough for passes beyond the largest graph.
  static rollout::EngineOptions options(bool graphs) {
    return {.max_running = 12, .max_batch_tokens = 64, .prefill_chunk = 40, .graphs = graphs};
  }

  Rollouts responses(bool graphs) {
    rollout::Engine engine(*model_, options(graphs));
    const Rollouts all = run(engine, groups());
    stats_ = engine.stats().graphs;
    return all;
  }

  const std::unique_ptr<model::PolicyModel> model_ =
      make_tiny_model(tiny_config(model::Family::kQwen3), GetParam(), Device::parse("far", 1));
  rollout::GraphStats stats_;
};

TEST_P(FarGraphsTest, GraphsNeverChangeTokens) {
  const Rollouts want = responses(false);
  EXPECT_EQ(stats_.direct + stats_.captures, 0);
  EXPECT_EQ(difference(responses(true), want), "");
  EXPECT_GT(stats_.sets, 3);
  EXPECT_GT(stats_.replays, 10);
}

// One set of graphs for each number of rows, whether they decode or verify.
TEST_P(FarGraphsTest, GraphsNeverChangeTokensOfTrees) {
  const Rollouts want = responses(false);
  rollout::Speculation speculation(
      std::make_unique<OracleDrafter>(want, kVocabulary, /*acceptance=*/0.7, 1),
      drafter::Strategy{6, 3, 8}, kVocabulary);
  rollout::Engine engine(*model_, options(true), nullptr, nullptr, &speculation);
  Rollouts got = run(engine, groups());
  for (auto& [place, response] : got)
    response.target_forwards = want.at(place).target_forwards;  // fewer
  EXPECT_EQ(difference(got, want), "");
  EXPECT_FALSE(speculation.stats().failed);
  EXPECT_GT(speculation.stats().accepted_tokens, 20);
  EXPECT_GT(engine.stats().graphs.replays, 2);
  EXPECT_LE(engine.stats().graphs.sets, std::ssize(ops::all_padded_rows()));
}

// Passes of more rows than the memory was made for move it, so graphs are captured again.
TEST_P(FarGraphsTest, MemoryThatMovesTakesTheGraphsWithIt) {
  model::Activations activations(*model_, /*max_rows=*/4);
  rollout::GraphCache graphs(model_->device());
  activations.use(*model_, graphs);
  kv::KvCache cache(model_->device(), model_->kv_shape(), 4);
  const std::vector<ops::PageId> pages = {0, 1, 2, 3};
  const std::vector<int32_t> tokens = random_tokens(1, 0, 64, kVocabulary);
  const auto pass = [&](int32_t rows) {
    ops::Batch batch;
    batch.add(tokens.data(), rows, 0, pages.data());
    return model_->forward(batch, cache, activations).clone();
  };
  const at::Tensor want = pass(3);
  EXPECT_EQ(want.size(0), 3);
  for (const int32_t rows : {3, 3, 40, 3, 40, 3, 40}) {
    const at::Tensor got = pass(rows);
    EXPECT_EQ(got.size(0), rows);
    EXPECT_TRUE(at::equal(got.narrow(0, 0, 3), want)) << rows << " rows";
  }
  EXPECT_GT(graphs.stats().replays, 1);
}

// Launches operations directly and counts them.
class CountingGraphs final : public model::RowGraphs {
 public:
  void launch(int64_t, int64_t, const std::function<void()>& work) override {
    const int64_t before = far_counts().operations;
    work();
    operations_ += far_counts().operations - before;
  }
  void clear() override {}
  int64_t take() { return std::exchange(operations_, 0); }

 private:
  int64_t operations_ = 0;
};

// What a graph holds depends on the padded rows only. The embedding, the rotation and the attention
// stay outside of graphs: a bounded number of operations for each layer, whatever the sequences.
TEST_P(FarGraphsTest, WhatIsLeftOutsideOfGraphs) {
  model::Activations activations(*model_, /*max_rows=*/64);
  CountingGraphs counting;
  activations.use(*model_, counting);
  kv::KvCache cache(model_->device(), model_->kv_shape(), 16);
  std::vector<ops::PageId> pages(16);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<ops::PageId>(i);
  const int64_t layers = model_->config().layers;
  int64_t in_graphs = 0;
  for (const int32_t sequences : {16, 9, 12}) {
    ops::Batch batch;
    for (int32_t i = 0; i < sequences; ++i) {
      const int32_t token = 3;
      batch.add(&token, 1, /*first_position=*/5, &pages[static_cast<size_t>(i)]);
    }
    model_->forward(batch, cache, activations);  // the table of angles
    counting.take();
    const FarCounts before = far_counts();
    model_->forward(batch, cache, activations);
    const FarCounts& now = far_counts();
    const int64_t inside = counting.take();
    EXPECT_EQ(now.uploads - before.uploads, 1) << "the batch, before the first graph";
    EXPECT_EQ(now.downloads - before.downloads, 0);
    EXPECT_EQ(now.synchronizations - before.synchronizations, 0);
    EXPECT_LE(now.operations - before.operations - inside, 2 + 4 * layers);
    if (ops::padded_rows(sequences) != 16) continue;
    EXPECT_TRUE(in_graphs == 0 || inside == in_graphs) << sequences << " sequences";
    in_graphs = inside;
  }
  RecordProperty("operations_in_graphs", std::to_string(in_graphs));
}

INSTANTIATE_TEST_SUITE_P(Types, FarGraphsTest, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float32" : "bfloat16";
                         });

}  // namespace
}  // namespace tlt::tests
