// Invariant: a response does not depend on concurrent sequences, chunked prefill, preemption or
// prefix sharing: tokens and logprobs are bit-identical.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/every_model.h"
#include "tests/support/hand_engine.h"
#include "tests/support/rollouts.h"
#include "tests/support/tiny_model.h"

namespace tlt::tests {
namespace {

using model::Family;
using rollout::Engine;
using rollout::EngineOptions;
using rollout::Group;
using rollout::SamplingOptions;

class BatchNeverChangesTokens : public ::testing::TestWithParam<ModelCase> {
 protected:
  Family family() const { return std::get<0>(GetParam()); }
  at::ScalarType type() const { return std::get<1>(GetParam()); }

  // Prompt lengths before, at and after page boundaries; every kind of sampling.
  std::vector<Group> groups() const {
    std::vector<Group> groups;
    for (const int64_t length : {1, 7, 15, 16, 17, 33, 48, 61}) {
      const auto id = static_cast<uint32_t>(groups.size());
      SamplingOptions sampling;
      sampling.temperature = id % 4 == 3 ? 0.0 : 1.0;
      sampling.top_k = id % 4 == 1 ? 20 : -1;
      sampling.top_p = id % 4 == 2 ? 0.9 : 1.0;
      sampling.max_new_tokens = 40 + 4 * id;
      groups.push_back({.prompt_id = id,
                        .tokens = random_tokens(2, id, length, tiny_config(family()).vocabulary),
                        .samples = 3,
                        .sampling = std::make_shared<const SamplingOptions>(sampling),
                        .seed = 5});
    }
    return groups;
  }

  EngineOptions crowd() const {
    EngineOptions options;
    options.max_running = 24;
    options.max_batch_tokens = 256;
    options.kv_memory_bytes = 300 * model_->kv_shape().page_bytes();
    return options;
  }

  // One response at a time, each in its own engine: once for all tests of a model.
  const Rollouts& alone() const {
    static std::map<ModelCase, Rollouts> known;
    Rollouts& rollouts = known[GetParam()];
    if (!rollouts.empty()) return rollouts;
    for (const Group& group : split_up(groups())) {
      EngineOptions options = crowd();
      options.max_running = 1;
      Engine engine(*model_, options);
      rollouts.merge(run(engine, {group}));
    }
    return rollouts;
  }

  const std::unique_ptr<model::PolicyModel> model_ = make_tiny_model(tiny_config(family()), type());
};

TEST_P(BatchNeverChangesTokens, WithManySequences) {
  Engine engine(*model_, crowd());
  EXPECT_EQ(difference(alone(), run(engine, groups())), "");
}

TEST_P(BatchNeverChangesTokens, InAnotherOrder) {
  std::vector<Group> reversed = groups();
  std::ranges::reverse(reversed);
  Engine engine(*model_, crowd());
  EXPECT_EQ(difference(alone(), run(engine, reversed)), "");
}

TEST_P(BatchNeverChangesTokens, WithoutSharing) {
  Engine engine(*model_, crowd());
  EXPECT_EQ(difference(alone(), run(engine, split_up(groups()))), "");
}

TEST_P(BatchNeverChangesTokens, InSmallChunksAndSmallBatches) {
  const Rollouts& want = alone();
  for (const int64_t chunk : {1, 3, 16, 50}) {
    EngineOptions options = crowd();
    options.prefill_chunk = chunk;
    options.max_running = 5;
    options.max_batch_tokens = 4 + chunk;
    options.max_batch_tokens = std::max(options.max_batch_tokens, options.max_running);
    Engine engine(*model_, options);
    EXPECT_EQ(difference(want, run(engine, groups())), "") << "chunk " << chunk;
  }
}

TEST_P(BatchNeverChangesTokens, WithPreemption) {
  const Rollouts& want = alone();
  int64_t preemptions = 0;
  for (const int64_t pages : {9, 10, 12, 15}) {
    EngineOptions options = crowd();
    options.kv_memory_bytes = pages * model_->kv_shape().page_bytes();
    options.prefill_chunk = 7;
    Engine engine(*model_, options);
    EXPECT_EQ(difference(want, run(engine, groups())), "") << pages << " pages";
    preemptions += engine.stats().preemptions;
  }
  EXPECT_GT(preemptions, 3);
}

TEST_P(BatchNeverChangesTokens, WithTwoThreads) {
  const auto threaded = make_tiny_model(tiny_config(family()), type(), test_device(2));
  Engine engine(*threaded, crowd());
  EXPECT_EQ(difference(alone(), run(engine, groups())), "");
}

TEST_P(BatchNeverChangesTokens, WithCancelledSequences) {
  Engine engine(*model_, crowd());
  Rollouts got, want = alone();
  for (const Group& group : groups()) engine.submit(group);
  for (int step = 0; step < 6; ++step) engine.step();
  for (uint32_t prompt = 0; prompt < 8; prompt += 2) engine.cancel(prompt, 1);
  while (engine.step()) {
  }
  keep(engine.take_finished(), got);
  std::erase_if(want, [&](const auto& one) {
    return got.at(one.first).finish == rollout::FinishReason::kCancelled;
  });
  std::erase_if(
      got, [](const auto& one) { return one.second.finish == rollout::FinishReason::kCancelled; });
  EXPECT_GE(std::ssize(want), 20);
  EXPECT_EQ(difference(want, got), "");
}

// Negative control: an engine step written by hand equals the engine's, and a planted fault in it
// is detected.
TEST_P(BatchNeverChangesTokens, DetectsAPlantedFault) {
  const Rollouts& want = alone();
  const auto with = [&](Fault fault) {
    return difference(want, HandEngine(*model_, crowd(), fault).run(groups()));
  };
  EXPECT_EQ(with(Fault::kNone), "");
  EXPECT_NE(with(Fault::kForgottenPageCopy), "");
  EXPECT_NE(with(Fault::kStaleSlot), "");
  EXPECT_NE(with(Fault::kWrongPosition), "");
  EXPECT_NE(with(Fault::kUniformByRow), "");
}

INSTANTIATE_TEST_SUITE_P(Models, BatchNeverChangesTokens, every_model(), model_name);

}  // namespace
}  // namespace tlt::tests
