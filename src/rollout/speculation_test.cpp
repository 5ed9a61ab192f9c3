// SPDX-License-Identifier: Apache-2.0
#include "rollout/speculation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <new>

#include "base/random.h"
#include "drafter/suffix/suffix_drafter.h"
#include "rollout/engine.h"
#include "tests/support/count_allocations.h"
#include "tests/support/plain_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/ticking_clock.h"
#include "tests/support/tiny_model.h"

namespace tlt::rollout {
namespace {

constexpr int64_t kSequences = 6;

// Proposes repetitions of the last token.
class EchoDrafter final : public tests::PlainDrafter {
 public:
  std::string_view kind() const override { return "echo"; }
  void propose(std::span<const drafter::DraftRequest> requests) override {
    for (const drafter::DraftRequest& request : requests) {
      int32_t node = drafter::DraftTree::kRoot;
      for (int64_t depth = 0; depth < std::min<int64_t>(request.strategy.depth, 3); ++depth)
        node = request.tree->add(node, request.response.back(), 0.5f);
    }
  }
};

class SpeculationTest : public ::testing::Test {
 protected:
  SpeculationTest() {
    config_.vocabulary = 6;  // small, so that sequences repeat and drafts are accepted
    config_.max_positions = 1024;
    model_ = tests::make_tiny_model(config_, at::kFloat);
  }

  std::vector<std::unique_ptr<drafter::Drafter>> drafters() const {
    std::vector<std::unique_ptr<drafter::Drafter>> drafters;
    drafters.push_back(std::make_unique<drafter::SuffixDrafter>(drafter::SuffixOptions{}));
    drafters.push_back(std::make_unique<EchoDrafter>());
    return drafters;
  }

  struct Count {
    double allocations = 0;  // per step
    double tokens = 0;       // per step
  };
  // Counts over steps in the middle of long responses. The same responses are decoded before, so
  // that all buffers have reached their size.
  Count count(Speculation* speculation) const {
    Count count;
    for (const bool is_warm : {false, true}) {
      EngineOptions options;
      options.max_running = kSequences;
      Engine engine(*model_, options, nullptr, nullptr, speculation);
      auto sampling = std::make_shared<SamplingOptions>();
      sampling->ignore_eos = true;
      sampling->max_new_tokens = 480;
      engine.submit({.prompt_id = 0,
                     .tokens = {1, 2, 3},
                     .samples = kSequences,
                     .sampling = sampling,
                     .seed = 3});
      for (int step = 0; step < 60; ++step) engine.step();
      // Responses are 61 tokens long or, with speculation, at most four times as long: their own
      // vectors grow occasionally, and nothing else may.
      const int64_t before = tests::allocations, tokens = engine.stats().tokens;
      constexpr int kSteps = 40;
      for (int step = 0; step < kSteps; ++step) engine.step();
      if (is_warm) count.allocations = static_cast<double>(tests::allocations - before) / kSteps;
      count.tokens = static_cast<double>(engine.stats().tokens - tokens) / kSteps;
      while (engine.step()) {
      }
      engine.take_finished();
    }
    return count;
  }

  model::ModelConfig config_ = tests::tiny_config(model::Family::kQwen2);
  std::unique_ptr<model::PolicyModel> model_;
};

// A non-speculative step allocates what its forward pass does. Drafting, building trees, verifying,
// accepting and learning add nothing that grows with steps or tokens, except that the vectors of
// growing responses are reallocated occasionally. (An EAGLE network's passes: EagleDrafterTest.)
TEST_F(SpeculationTest, HotPathAllocatesNothing) {
  const Count plain = count(nullptr);
  const double growth = 0.25 * kSequences;  // ten reallocations per sequence in forty steps
  const auto expect_as_non_speculative = [&](const char* name, Speculation& speculation) {
    const Count with = count(&speculation);
    RecordProperty(name, std::to_string(with.allocations - plain.allocations));
    EXPECT_LE(with.allocations, plain.allocations + growth) << name;
    EXPECT_GT(speculation.stats().accepted_tokens, 100) << name << " is accepted";
    EXPECT_FALSE(speculation.stats().failed);
  };
  Speculation suffix(std::move(drafters().front()), {4, 2, 8}, config_.vocabulary);
  expect_as_non_speculative("suffix", suffix);
  Speculation mixed(drafters(), {4, 2, 8}, config_.vocabulary);
  expect_as_non_speculative("mixed", mixed);
  const speculation::CostTable costs({{1, 1, 1e-3}, {1, 64, 1.1e-3}, {8, 8, 2e-3}, {8, 500, 3e-3}},
                                     {});
  const tests::TickingClock clock;
  Speculation tuned(drafters(),
                    {.options = {},
                     .kinds = {"suffix", "echo", "mixed"},
                     .costs = costs,
                     .max_rows = 1000,
                     .clock = &clock},
                    config_.vocabulary);
  expect_as_non_speculative("tuned", tuned);
}

// Short work ends before costs are measured and has no drafts.
TEST_F(SpeculationTest, CostsAreMeasuredAfterSomeDecoding) {
  const tests::TickingClock clock;
  int measured = 0;
  const auto measure = [&] {
    ++measured;
    return speculation::CostTable({{1, 1, 1e-3}, {1, 64, 1.1e-3}, {8, 8, 2e-3}, {8, 500, 3e-3}},
                                  {});
  };
  Speculation deferred(drafters(),
                       {.options = {}, .measure_costs = measure, .max_rows = 1000, .clock = &clock},
                       config_.vocabulary);
  const auto decode = [&](int64_t tokens) {
    Engine engine(*model_, {}, nullptr, nullptr, &deferred);
    auto sampling = std::make_shared<SamplingOptions>();
    sampling->ignore_eos = true;
    sampling->max_new_tokens = tokens;
    engine.submit({.tokens = {1, 2, 3}, .sampling = sampling, .seed = 3});
    while (engine.step()) {
    }
  };
  decode(20);
  EXPECT_EQ(measured, 0);
  EXPECT_EQ(deferred.stats().trees, 0);
  decode(1000);
  EXPECT_EQ(measured, 1);
  EXPECT_GT(deferred.stats().accepted_tokens, 100);
}

// Prompts of 3 and 40 tokens. Before a step, a response's last token has no KV entry yet.
TEST_F(SpeculationTest, LoadIsTheMeanContextOfDecodingSequences) {
  const tests::TickingClock clock;
  Speculation tuned(drafters(),
                    {.options = {},
                     .costs = speculation::CostTable({{1, 1, 1e-3}}, {}),
                     .max_rows = 1000,
                     .clock = &clock},
                    config_.vocabulary);
  Engine engine(*model_, {}, nullptr, nullptr, &tuned);
  auto sampling = std::make_shared<SamplingOptions>();
  sampling->ignore_eos = true;
  sampling->max_new_tokens = 100;
  for (const uint32_t prompt : {0u, 1u})
    engine.submit({.prompt_id = prompt,
                   .tokens = std::vector<int32_t>(prompt == 0 ? 3 : 40, 2),
                   .samples = 2,
                   .sampling = sampling,
                   .seed = 3});
  engine.step();
  EXPECT_EQ(tuned.load().batch, 0) << "prefill only";
  int steps = 0;
  for (int64_t tokens = engine.stats().tokens; engine.step(); tokens = engine.stats().tokens) {
    if (tuned.load().batch < 4) continue;
    ++steps;
    EXPECT_DOUBLE_EQ(tuned.load().context, (3 + 40) / 2.0 + static_cast<double>(tokens) / 4 - 1);
  }
  EXPECT_GT(steps, 5);
}

TEST_F(SpeculationTest, SpareCapacityFollowsTheCostTable) {
  const auto spare = [&](const speculation::CostTable& costs, int64_t max_running) {
    const tests::TickingClock clock;
    Speculation tuned(drafters(),
                      {.options = {}, .costs = costs, .max_rows = 1000, .clock = &clock},
                      config_.vocabulary);
    EngineOptions options;
    options.max_running = max_running;
    Engine engine(*model_, options, nullptr, nullptr, &tuned);
    engine.submit({.prompt_id = 0,
                   .tokens = {1, 2, 3},
                   .samples = 2,
                   .sampling = std::make_shared<SamplingOptions>(),
                   .seed = 3});
    return engine.spare_capacity();
  };
  const speculation::CostTable free({{1, 1, 1e-3}, {1, 64, 1e-3}, {8, 8, 1e-3}, {8, 500, 1e-3}},
                                    {});
  const speculation::CostTable dear({{1, 1, 1e-3}, {1, 64, 64e-3}, {8, 8, 8e-3}, {8, 500, 500e-3}},
                                    {});
  EXPECT_EQ(spare(free, 64), 2) << "at most the batch";
  EXPECT_EQ(spare(free, 3), 1) << "the engine's free slots";
  EXPECT_EQ(spare(dear, 64), 0);
  Engine plain(*model_, {});
  plain.submit({.prompt_id = 0,
                .tokens = {1, 2, 3},
                .samples = 2,
                .sampling = std::make_shared<SamplingOptions>()});
  EXPECT_EQ(plain.spare_capacity(), 0) << "no tuner";
}

// Proposes a token that is not accepted, and records the uniforms it gets.
class UniformRecorder final : public tests::PlainDrafter {
 public:
  explicit UniformRecorder(std::map<std::pair<uint32_t, size_t>, double>* uniforms)
      : uniforms_(*uniforms) {}
  std::string_view kind() const override { return "recording"; }
  void propose(std::span<const drafter::DraftRequest> requests) override {
    for (const drafter::DraftRequest& request : requests) {
      size_t position = request.response.size();
      for (const double uniform : request.draws.numbers)
        uniforms_[{request.id.sample, position++}] = uniform;
      request.tree->add(drafter::DraftTree::kRoot, request.response.back(), 0.5f);
    }
  }

 private:
  std::map<std::pair<uint32_t, size_t>, double>& uniforms_;
};

// Drafters get the uniforms of rollout/request.h, but not where tokens depend on the drafts.
TEST_F(SpeculationTest, DraftersGetTheUniformsOfTheNextTokens) {
  const auto uniforms_of = [&](const SamplingOptions& sampling, bool is_target_only) {
    std::map<std::pair<uint32_t, size_t>, double> uniforms;
    Speculation speculation(std::make_unique<UniformRecorder>(&uniforms), {4, 2, 8},
                            config_.vocabulary);
    if (is_target_only) speculation.set_target_only({});
    Engine engine(*model_, {}, nullptr, nullptr, &speculation);
    engine.submit({.prompt_id = 7,
                   .rl_step = 5,
                   .tokens = {1, 2, 3},
                   .samples = 3,
                   .sampling = std::make_shared<SamplingOptions>(sampling),
                   .seed = 11});
    while (engine.step()) {
    }
    return uniforms;
  };
  SamplingOptions sampling;
  sampling.ignore_eos = true;
  sampling.max_new_tokens = 30;
  const auto uniforms = uniforms_of(sampling, /*is_target_only=*/false);
  ASSERT_EQ(uniforms.size(), 3 * 27) << "all but the first two tokens and the last one";
  for (const auto& [key, got] : uniforms)
    EXPECT_EQ(got, uniform(/*seed=*/11, {.step = 5,
                                         .prompt = 7,
                                         .sample = key.first,
                                         .position = static_cast<uint32_t>(key.second)}));
  EXPECT_TRUE(uniforms_of(sampling, /*is_target_only=*/true).empty());
  sampling.temperature = 0;
  EXPECT_TRUE(uniforms_of(sampling, /*is_target_only=*/false).empty());
}

// The tree that ends a response included, whose tokens have been moved out when it is counted.
TEST_F(SpeculationTest, TreesAreCountedByPosition) {
  Speculation speculation(std::move(drafters().front()), {4, 2, 8}, config_.vocabulary);
  Engine engine(*model_, {}, nullptr, nullptr, &speculation);
  auto sampling = std::make_shared<SamplingOptions>();
  sampling->ignore_eos = true;
  sampling->max_new_tokens = 700;
  std::array<int64_t, speculation::kPositions> trees = {};
  int64_t before = 0, ended_by_trees = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    engine.submit({.tokens = {1, 2, 3}, .sampling = sampling, .seed = seed});
    bool has_tree = false;
    while (engine.step()) {
      const int64_t now = speculation.stats().trees;
      has_tree = now > before;
      before = now;
      for (size_t i = 0; has_tree && i < speculation::kPositions; ++i)
        trees[i] += speculation.load().positions[i];  // of the only sequence
    }
    ended_by_trees += has_tree;
  }
  const SpeculationStats stats = speculation.stats();
  EXPECT_EQ(stats.trees_at_position, trees);
  EXPECT_GT(trees[0], 50);
  EXPECT_GT(trees[1], 10);
  EXPECT_GT(ended_by_trees, 0);
  EXPECT_EQ(stats.accepted_at_position[0] + stats.accepted_at_position[1], stats.accepted_tokens);
}

// Of one sequence, on a machine where a forward pass takes as long with any number of rows: each
// token would have taken a step without drafting. With passes that take as long as they have rows,
// verifying was as slow as that.
TEST_F(SpeculationTest, PlainSecondsAreEstimated) {
  const tests::TickingClock clock;
  for (const double seconds_of_a_row : {0.0, 1.0}) {
    const auto pass = [&](int64_t rows) {
      return speculation::ForwardCost{1, rows,
                                      1 + seconds_of_a_row * static_cast<double>(rows - 1)};
    };
    Speculation speculation(drafters(),
                            {.options = {},
                             .costs = speculation::CostTable({pass(1), pass(64)}, {}),
                             .max_rows = 1000,
                             .clock = &clock},
                            config_.vocabulary);
    Engine engine(*model_, {}, nullptr, nullptr, &speculation);
    auto sampling = std::make_shared<SamplingOptions>();
    sampling->ignore_eos = true;
    sampling->max_new_tokens = 300;
    engine.submit({.tokens = {1, 2, 3}, .sampling = sampling, .seed = 3});
    int64_t longest = 0;
    SpeculationStats before;
    for (int64_t tokens = 0, rows = 0; engine.step();) {
      const EngineStats now = engine.stats();
      const SpeculationStats stats = speculation.stats();
      const double target =
          stats.step_seconds - before.step_seconds - (stats.draft_seconds - before.draft_seconds);
      const auto accepted = static_cast<double>(now.tokens - tokens),
                 verified = static_cast<double>(now.rows - rows);
      if (stats.decode_steps > before.decode_steps) {
        EXPECT_NEAR(stats.plain_seconds - before.plain_seconds,
                    target * accepted / (seconds_of_a_row == 0 ? 1 : verified), 1e-9);
      }
      longest = std::max(longest, now.tokens - tokens);
      before = stats, tokens = now.tokens, rows = now.rows;
    }
    EXPECT_TRUE(longest > 1 || seconds_of_a_row > 0) << "draft tokens are accepted";
    EXPECT_GT(before.step_seconds, 0);
  }
}

TEST_F(SpeculationTest, SecondsIncludeDrafting) {
  Speculation speculation(drafters(), {4, 2, 8}, config_.vocabulary);
  count(&speculation);
  const SpeculationStats stats = speculation.stats();
  EXPECT_GT(stats.seconds, stats.draft_seconds);
  EXPECT_EQ(stats.forward_seconds, 0) << "no draft model";
}

}  // namespace
}  // namespace tlt::rollout
