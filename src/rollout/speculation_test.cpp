// SPDX-License-Identifier: Apache-2.0
#include "rollout/speculation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "rollout/engine.h"
#include "spec/suffix_drafter.h"
#include "tests/support/count_allocations.h"
#include "tests/support/plain_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/ticking_clock.h"
#include "tests/support/tiny_model.h"

namespace tlt::rollout {
namespace {

constexpr int64_t kSequences = 6;

// Always guesses that the last token comes again.
class EchoDrafter final : public tests::PlainDrafter {
 public:
  std::string_view kind() const override { return "echo"; }
  void propose(std::span<const spec::DraftRequest> requests) override {
    for (const spec::DraftRequest& request : requests) {
      int32_t node = spec::DraftTree::kRoot;
      for (int64_t depth = 0; depth < std::min<int64_t>(request.strategy.depth, 3); ++depth)
        node = request.tree->add(node, request.response.back(), 0.5f);
    }
  }
};

class SpeculationTest : public ::testing::Test {
 protected:
  SpeculationTest() {
    config_.vocabulary = 6;  // so that texts repeat themselves and guesses are right
    config_.max_positions = 1024;
    model_ = tests::make_tiny_model(config_, at::kFloat);
  }

  std::vector<std::unique_ptr<spec::Drafter>> drafters() const {
    std::vector<std::unique_ptr<spec::Drafter>> drafters;
    drafters.push_back(std::make_unique<spec::SuffixDrafter>(spec::SuffixOptions{}));
    drafters.push_back(std::make_unique<EchoDrafter>());
    return drafters;
  }

  struct Count {
    double allocations = 0;  // a step
    double tokens = 0;       // the same
  };
  // Of steps in the midst of long responses. The same responses are decoded before, so that all
  // memory has been grown once.
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
      // Responses are 61 tokens long or, with guesses, at most four times as long: their own
      // vectors are grown now and then, and nothing else may be.
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

// A plain step allocates what its forward pass does. Guessing, building trees, verifying,
// accepting and learning add nothing that grows with steps or tokens: only texts that become longer
// now and then move. (What an EAGLE network's passes allocate: EagleDrafterTest.)
TEST_F(SpeculationTest, HotPathAllocatesNothing) {
  const Count plain = count(nullptr);
  const double growth = 0.25 * kSequences;  // ten moves of a text in forty steps
  const auto expect_as_plain = [&](const char* name, Speculation& speculation) {
    const Count with = count(&speculation);
    RecordProperty(name, std::to_string(with.allocations - plain.allocations));
    EXPECT_LE(with.allocations, plain.allocations + growth) << name;
    EXPECT_GT(speculation.stats().accepted_tokens, 100) << name << " guesses right";
    EXPECT_FALSE(speculation.stats().failed);
  };
  Speculation suffix(std::move(drafters().front()), {4, 2, 8}, config_.vocabulary);
  expect_as_plain("suffix", suffix);
  Speculation mixed(drafters(), {4, 2, 8}, config_.vocabulary);
  expect_as_plain("mixed", mixed);
  const spec::CostTable costs({{1, 1, 1e-3}, {1, 64, 1.1e-3}, {8, 8, 2e-3}, {8, 500, 3e-3}}, {});
  const tests::TickingClock clock;
  Speculation tuned(drafters(),
                    {.options = {},
                     .kinds = {"suffix", "echo", "mixed"},
                     .costs = costs,
                     .max_rows = 1000,
                     .clock = &clock},
                    config_.vocabulary);
  expect_as_plain("tuned", tuned);
}

TEST_F(SpeculationTest, TheTimeItTakesIsCounted) {
  Speculation speculation(drafters(), {4, 2, 8}, config_.vocabulary);
  count(&speculation);
  const SpeculationStats stats = speculation.stats();
  EXPECT_GT(stats.seconds, stats.draft_seconds);
  EXPECT_EQ(stats.forward_seconds, 0) << "no network";
}

}  // namespace
}  // namespace tlt::rollout
