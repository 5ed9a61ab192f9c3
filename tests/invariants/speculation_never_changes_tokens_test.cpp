// Invariant: with the same seed, tokens and logprobs are bit-identical to non-speculative decoding,
// with any drafter and strategy, switched on and off at any step.
//
// TLT_INVARIANT_RESPONSES=10000 compares this many different responses, with random settings,
// instead of a few: build/tests/tlt_invariant_test
// --gtest_filter='*SpeculationNever*ManyResponses*'
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "drafter/eagle/draft_eagle.h"
#include "drafter/eagle/draft_eagle3.h"
#include "drafter/eagle/eagle_drafter.h"
#include "drafter/ngram/ngram_drafter.h"
#include "drafter/suffix/suffix_drafter.h"
#include "tests/support/every_model.h"
#include "tests/support/hand_engine.h"
#include "tests/support/oracle_drafter.h"
#include "tests/support/plain_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/ticking_clock.h"
#include "tests/support/tiny_model.h"

namespace tlt::tests {
namespace {

using drafter::Strategy;
using model::Family;
using rollout::Engine;
using rollout::EngineOptions;
using rollout::Group;
using rollout::SamplingOptions;
using rollout::Speculation;

class SpeculationNeverChangesTokens
    : public ::testing::TestWithParam<std::tuple<Family, at::ScalarType>> {
 protected:
  Family family() const { return std::get<0>(GetParam()); }
  at::ScalarType type() const { return std::get<1>(GetParam()); }

  // Prompt lengths before, at and after page boundaries; every kind of sampling.
  std::vector<Group> groups(uint64_t seed = 5) const {
    std::vector<Group> groups;
    for (const int64_t length : {1, 7, 15, 16, 17, 33, 48, 61}) {
      const auto id = static_cast<uint32_t>(groups.size());
      SamplingOptions sampling;
      sampling.temperature = id % 5 == 4 ? 0.0 : 1.0;
      sampling.top_k = id % 5 == 1 ? 20 : -1;
      sampling.top_p = id % 5 == 2 ? 0.9 : 1.0;
      sampling.min_p = id % 5 == 3 ? 0.02 : 0.0;
      sampling.max_new_tokens = 40 + 4 * id;
      groups.push_back({.prompt_id = id,
                        .tokens = random_tokens(2, id, length, vocabulary()),
                        .samples = 3,
                        .sampling = std::make_shared<const SamplingOptions>(sampling),
                        .seed = seed});
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

  int64_t vocabulary() const { return model_->config().vocabulary; }

  std::unique_ptr<OracleDrafter> oracle(double acceptance, uint64_t seed = 1) const {
    return std::make_unique<OracleDrafter>(plain_, vocabulary(), acceptance, seed);
  }

  // `target_forwards` is what speculation reduces, and not part of the invariant.
  static std::string difference_of_tokens(Rollouts a, const Rollouts& b) {
    for (auto& [place, response] : a)
      if (const auto other = b.find(place); other != b.end())
        response.target_forwards = other->second.target_forwards;
    return difference(a, b);
  }

  const std::unique_ptr<model::PolicyModel> model_ = make_tiny_model(tiny_config(family()), type());
  const Rollouts plain_ = [this] {
    Engine engine(*model_, crowd());
    return run(engine, groups());
  }();
};

TEST_P(SpeculationNeverChangesTokens, WithAnyTrees) {
  int64_t accepted = 0;
  for (const double acceptance : {0.0, 0.3, 0.9})
    for (const Strategy strategy : {Strategy{1, 1, 2}, {3, 2, 6}, {8, 4, 24}, {16, 8, 60}}) {
      Speculation speculation(oracle(acceptance), strategy, vocabulary());
      EngineOptions options = crowd();
      options.max_batch_tokens = 2000;
      Engine engine(*model_, options, nullptr, nullptr, &speculation);
      EXPECT_EQ(difference_of_tokens(plain_, run(engine, groups())), "")
          << "acceptance " << acceptance << " " << to_string(strategy);
      EXPECT_FALSE(speculation.stats().failed);
      accepted += speculation.stats().accepted_tokens;
    }
  EXPECT_GT(accepted, 2000);
}

// Sequences that repeat themselves, so that draft tokens are accepted: a small vocabulary.
TEST_P(SpeculationNeverChangesTokens, WithEveryDrafter) {
  model::ModelConfig config = tiny_config(family());
  config.vocabulary = 6;
  config.layers = 3;
  config.eos_tokens = {1};
  const auto model = make_tiny_model(config, type());
  std::vector<Group> few = groups();
  for (Group& group : few)
    for (int32_t& token : group.tokens) token %= 6;
  Engine without(*model, crowd());
  const Rollouts plain = run(without, few);
  drafter::EagleNetwork network(*model, drafter::EagleNetwork::config_for(config));
  network.initialize(3);
  drafter::Eagle3Network eagle3(*model, drafter::Eagle3Config::make(config, /*head_rows=*/5));
  eagle3.set_head_tokens({0, 2, 3, 4, 5});
  eagle3.initialize(3);
  const auto drafter = [&](const std::string& kind) -> std::unique_ptr<drafter::Drafter> {
    // So few pages that not every sequence can draft.
    const drafter::EagleDrafterOptions tight = {
        .window = 30, .kv_memory_bytes = 200 * network.kv_shape().page_bytes()};
    if (kind == "eagle") return std::make_unique<drafter::EagleDrafter>(network, tight);
    if (kind == "eagle3") return std::make_unique<drafter::EagleDrafter>(eagle3, tight);
    if (kind == "suffix") return std::make_unique<drafter::SuffixDrafter>(drafter::SuffixOptions{});
    return std::make_unique<drafter::NgramDrafter>(drafter::NgramOptions{});
  };
  const auto drafters = [&](const std::string& kind) {
    std::vector<std::unique_ptr<drafter::Drafter>> all;
    for (const std::string& one :
         kind == "mixed" ? std::vector<std::string>{"suffix", "eagle"} : std::vector{kind})
      all.push_back(drafter(one));
    return all;
  };
  for (const char* kind : {"suffix", "ngram", "eagle", "eagle3", "mixed"})
    for (const Strategy strategy : {Strategy{1, 1, 2}, {4, 2, 6}, {8, 4, 16}, {18, 11, 40}}) {
      std::vector<std::unique_ptr<drafter::Drafter>> all = drafters(kind);
      const auto made =
          all.size() == 1
              ? std::make_unique<Speculation>(std::move(all.front()), strategy, config.vocabulary)
              : std::make_unique<Speculation>(std::move(all), strategy, config.vocabulary);
      Speculation& speculation = *made;
      EngineOptions options = crowd();
      options.kv_memory_bytes = 40 * model->kv_shape().page_bytes();
      options.max_batch_tokens = 600;
      for (int epoch = 0; epoch < 2; ++epoch) {  // the second uses the state that the first leaves
        Engine engine(*model, options, nullptr, nullptr, &speculation);
        EXPECT_EQ(difference_of_tokens(plain, run(engine, few)), "")
            << kind << " " << to_string(strategy) << " epoch " << epoch;
      }
      EXPECT_FALSE(speculation.stats().failed) << kind;
      EXPECT_GT(speculation.stats().accepted_tokens, 5) << kind << " " << to_string(strategy);
    }
}

// A random drafter, strategy and batch size for every 24 responses, with new prompts each time.
TEST_P(SpeculationNeverChangesTokens, OverManyResponses) {
  constexpr int64_t kModels = 6;  // INSTANTIATE_TEST_SUITE_P's
  const char* asked = std::getenv("TLT_INVARIANT_RESPONSES");
  const int64_t wanted = asked ? (std::atoll(asked) + kModels - 1) / kModels : 1;
  model::ModelConfig config = tiny_config(family());
  config.vocabulary = 12;
  config.layers = 3;
  const auto model = make_tiny_model(config, type());
  drafter::EagleNetwork eagle(*model, drafter::EagleNetwork::config_for(config));
  eagle.initialize(3);
  drafter::Eagle3Network eagle3(*model, drafter::Eagle3Config::make(config, /*head_rows=*/9));
  eagle3.set_head_tokens({0, 2, 3, 4, 5, 6, 7, 9, 11});
  eagle3.initialize(3);
  RandomStream random(11, {});
  const auto one_of = [&](const auto& list) { return list[random.below(std::size(list))]; };
  int64_t compared = 0, tokens = 0, accepted = 0;
  for (uint64_t seed = 100; compared < wanted; ++seed) {
    std::vector<Group> some = groups(seed);
    for (Group& group : some) {
      group.tokens = random_tokens(seed, group.prompt_id, 1 + random.below(70), config.vocabulary);
      SamplingOptions sampling = *group.sampling;
      sampling.temperature = one_of(std::array{0.0, 0.3, 1.0, 1.5});
      sampling.ignore_eos = random.below(3) > 0;
      group.sampling = std::make_shared<const SamplingOptions>(sampling);
    }
    Engine without(*model, crowd());
    const Rollouts plain = run(without, some);

    const auto drafter = [&](std::string_view kind) -> std::unique_ptr<drafter::Drafter> {
      const drafter::EagleDrafterOptions states = {
          .window = static_cast<int64_t>(8 + random.below(60)),
          .kv_memory_bytes = 300 * eagle.kv_shape().page_bytes()};
      if (kind == "eagle") return std::make_unique<drafter::EagleDrafter>(eagle, states);
      if (kind == "eagle3") return std::make_unique<drafter::EagleDrafter>(eagle3, states);
      if (kind == "suffix")
        return std::make_unique<drafter::SuffixDrafter>(drafter::SuffixOptions{});
      if (kind == "oracle")
        return std::make_unique<OracleDrafter>(plain, config.vocabulary, random.uniform(), seed);
      return std::make_unique<drafter::NgramDrafter>(drafter::NgramOptions{});
    };
    constexpr std::array kKinds = {"eagle", "eagle3", "suffix", "ngram", "oracle"};
    std::vector<std::unique_ptr<drafter::Drafter>> drafters;
    const std::string_view kind = one_of(kKinds), second = one_of(kKinds);
    drafters.push_back(drafter(kind));
    const bool is_mixed = second != kind && random.below(4) == 0;
    if (is_mixed) drafters.push_back(drafter(second));
    const Strategy strategy = one_of(std::vector<Strategy>{
        {1, 1, 2}, {2, 2, 4}, {4, 2, 6}, {6, 1, 7}, {8, 4, 16}, {8, 4, 48}, {18, 11, 40}});
    const auto speculation =
        is_mixed ? std::make_unique<Speculation>(std::move(drafters), strategy, config.vocabulary)
                 : std::make_unique<Speculation>(std::move(drafters.front()), strategy,
                                                 config.vocabulary);
    EngineOptions options = crowd();
    options.max_running = one_of(std::array{1, 3, 8, 24});
    options.max_batch_tokens = one_of(std::array{64, 256, 1000, 2000});
    options.prefill_chunk = one_of(std::array{7, 16, 64});
    options.kv_memory_bytes = one_of(std::array{14, 40, 300}) * model->kv_shape().page_bytes();
    Engine engine(*model, options, nullptr, nullptr, speculation.get());
    ASSERT_EQ(difference_of_tokens(plain, run(engine, some)), "")
        << kind << (is_mixed ? " with " : "") << (is_mixed ? second : "") << " "
        << to_string(strategy) << " seed " << seed << ": " << options.max_running << " running, "
        << options.max_batch_tokens << " rows, " << options.kv_memory_bytes << " bytes";
    EXPECT_FALSE(speculation->stats().failed) << kind;
    compared += std::ssize(plain);
    accepted += speculation->stats().accepted_tokens;
    for (const auto& [place, response] : plain) tokens += std::ssize(response.tokens);
  }
  EXPECT_GT(accepted, 0);
  if (asked)
    std::cout << compared << " responses of " << tokens << " tokens, " << accepted
              << " of them drafted: all bit-identical" << std::endl;
}

// Token i is the i-th letter.
class Letters final : public rollout::StopString {
 public:
  std::unique_ptr<rollout::TextStream> open() const override {
    struct Stream final : rollout::TextStream {
      std::string_view push(int32_t token) override {
        letter = static_cast<char>('a' + token);
        return {&letter, 1};
      }
      char letter = 0;
    };
    return std::make_unique<Stream>();
  }
};

// A stop string that ends within an accepted path ends the response there.
TEST_P(SpeculationNeverChangesTokens, WithStopStrings) {
  model::ModelConfig config = tiny_config(family());
  config.vocabulary = 6;
  config.eos_tokens = {1};
  const auto model = make_tiny_model(config, type());
  const Letters letters;
  std::vector<Group> few = groups();
  for (Group& group : few) {
    for (int32_t& token : group.tokens) token %= 6;
    SamplingOptions sampling = *group.sampling;
    sampling.ignore_eos = true;
    sampling.stop = {"cd", "ec", "fb", "df", "aee", "dda"};
    group.sampling = std::make_shared<const SamplingOptions>(sampling);
  }
  Engine without(*model, crowd(), &letters);
  const Rollouts plain = run(without, few);
  int64_t stopped = 0;
  for (const auto& [place, response] : plain)
    stopped += response.finish == rollout::FinishReason::kStop ? 1 : 0;
  EXPECT_GE(stopped, 10);
  for (const double acceptance : {0.5, 1.0}) {
    Speculation speculation(std::make_unique<OracleDrafter>(plain, 6, acceptance, 1), {8, 4, 16},
                            6);
    EngineOptions options = crowd();
    options.max_batch_tokens = 600;
    Engine engine(*model, options, &letters, nullptr, &speculation);
    EXPECT_EQ(difference_of_tokens(plain, run(engine, few)), "") << acceptance;
    EXPECT_GT(speculation.stats().accepted_tokens, 20);
  }
}

TEST_P(SpeculationNeverChangesTokens, WithFewRowsAndPreemption) {
  int64_t preemptions = 0, trees = 0;
  for (const int64_t pages : {9, 10, 12, 15, 30})
    for (const int64_t batch_tokens : {24, 40, 100}) {
      Speculation speculation(oracle(0.6, static_cast<uint64_t>(pages)), {6, 3, 10}, vocabulary());
      EngineOptions options = crowd();
      options.kv_memory_bytes = pages * model_->kv_shape().page_bytes();
      options.max_batch_tokens = batch_tokens;
      options.prefill_chunk = 7;
      Engine engine(*model_, options, nullptr, nullptr, &speculation);
      EXPECT_EQ(difference_of_tokens(plain_, run(engine, groups())), "")
          << pages << " pages, " << batch_tokens << " rows";
      preemptions += engine.stats().preemptions;
      trees += speculation.stats().trees;
    }
  EXPECT_GT(preemptions, 10);
  EXPECT_GT(trees, 1000);
}

TEST_P(SpeculationNeverChangesTokens, SwitchedAtRandomSteps) {
  RandomStream random(7, {});
  for (int round = 0; round < 3; ++round) {
    Speculation speculation(oracle(0.7), drafter::kOff, vocabulary());
    Engine engine(*model_, crowd(), nullptr, nullptr, &speculation);
    Rollouts got;
    for (const Group& group : groups()) engine.submit(group);
    const Strategy strategies[] = {drafter::kOff, {2, 2, 4}, {8, 4, 16}};
    do {
      speculation.set_strategy(strategies[random.below(3)]);
      keep(engine.take_finished(), got);
    } while (engine.step());
    keep(engine.take_finished(), got);
    engine.check_idle_invariants();
    EXPECT_EQ(difference_of_tokens(plain_, got), "") << "round " << round;
  }
}

// A drafter that violates its contract is turned off, and the responses are the same.
class BrokenDrafter final : public tests::PlainDrafter {
 public:
  enum class Break { kThrow, kOrder, kToken, kDepth, kSize };
  explicit BrokenDrafter(Break how) : how_(how) {}
  std::string_view kind() const override { return "broken"; }
  void propose(std::span<const drafter::DraftRequest> requests) override {
    for (const drafter::DraftRequest& request : requests) {
      drafter::DraftTree& tree = *request.tree;
      const int32_t a = tree.add(drafter::DraftTree::kRoot, 5, 0.5f);
      if (++calls_ < 20) continue;
      TLT_CHECK(how_ != Break::kThrow, "as planned");
      if (how_ == Break::kOrder) tree.add(drafter::DraftTree::kRoot, 6, 0.5f), tree.add(a, 7, 0.5f);
      if (how_ == Break::kToken) tree.add(drafter::DraftTree::kRoot, 100, 0.5f);
      int32_t last = a;
      for (int i = 0; how_ == Break::kDepth && i < 4; ++i) last = tree.add(last, 9, 0.5f);
      for (int32_t i = 6; how_ == Break::kSize && i < 20; ++i)
        tree.add(drafter::DraftTree::kRoot, i, 0.5f);
    }
  }

 private:
  const Break how_;
  int64_t calls_ = 0;
};

// All steps take the same time, whatever they verify, so that the tuner explores all arms.
Speculation tuned(const Clock& clock, std::vector<std::unique_ptr<drafter::Drafter>> drafters,
                  const std::string& algorithm, int64_t vocabulary,
                  std::vector<std::string> kinds = {}) {
  speculation::SpeculationOptions options;
  options.bs_threshold = 12;
  options.eagle.tune_algorithm = algorithm;
  return {std::move(drafters),
          {.options = options,
           .kinds = std::move(kinds),
           .costs = speculation::CostTable(
               {{1, 1, 1e-3}, {1, 64, 1.1e-3}, {24, 24, 2e-3}, {24, 1000, 3e-3}}, {}),
           .max_rows = 1000,
           .seed = 3,
           .clock = &clock},
          vocabulary};
}

TEST_P(SpeculationNeverChangesTokens, WithEveryTuner) {
  for (const char* algorithm : {"ADAPTIVE", "BEG"}) {
    std::vector<std::unique_ptr<drafter::Drafter>> drafters;
    drafters.push_back(oracle(0.8));
    drafters.push_back(std::make_unique<drafter::SuffixDrafter>(drafter::SuffixOptions{}));
    const TickingClock clock;
    Speculation speculation =
        tuned(clock, std::move(drafters), algorithm, vocabulary(), {"oracle", "suffix", "mixed"});
    EngineOptions options = crowd();
    options.max_batch_tokens = 1000;
    for (int rollout = 0; rollout < 2; ++rollout) {
      Engine engine(*model_, options, nullptr, nullptr, &speculation);
      EXPECT_EQ(difference_of_tokens(plain_, run(engine, groups())), "") << algorithm;
      speculation.new_weights();
    }
    const rollout::SpeculationStats stats = speculation.stats();
    EXPECT_FALSE(stats.failed);
    EXPECT_GT(stats.accepted_tokens, 0) << algorithm;
    EXPECT_GT(speculation.tuner()->report().steps, 0);
  }
}

TEST_P(SpeculationNeverChangesTokens, FailedDrafterIsNoLongerChosen) {
  std::vector<std::unique_ptr<drafter::Drafter>> drafters;
  drafters.push_back(std::make_unique<BrokenDrafter>(BrokenDrafter::Break::kThrow));
  drafters.push_back(oracle(0.8));
  const TickingClock clock;
  Speculation speculation = tuned(clock, std::move(drafters), "BEG", vocabulary());
  Engine engine(*model_, crowd(), nullptr, nullptr, &speculation);
  // It fails at its twentieth tree, and is chosen at random.
  for (int i = 0; i < 20 && !speculation.stats_of(0).failed; ++i)
    EXPECT_EQ(difference_of_tokens(plain_, run(engine, groups())), "");
  EXPECT_EQ(difference_of_tokens(plain_, run(engine, groups())), "");
  EXPECT_TRUE(speculation.stats_of(0).failed);
  EXPECT_FALSE(speculation.stats_of(1).failed);
  EXPECT_GT(speculation.stats_of(1).accepted_tokens, 0);
  for (const speculation::Arm& arm : speculation.tuner()->arms()) EXPECT_NE(arm.kind, "broken");
}

// So good that a tuner selects it, until it fails.
class ShortLivedDrafter final : public drafter::Drafter {
 public:
  explicit ShortLivedDrafter(std::unique_ptr<drafter::Drafter> inner) : inner_(std::move(inner)) {}
  std::string_view kind() const override { return "short-lived"; }
  void end(drafter::SequenceId id, std::span<const int32_t> response) override {
    inner_->end(id, response);
  }
  int64_t memory_bytes() const override { return inner_->memory_bytes(); }
  void propose(std::span<const drafter::DraftRequest> requests) override {
    TLT_CHECK(++calls_ < 5, "as planned");
    inner_->propose(requests);
  }

 private:
  const std::unique_ptr<drafter::Drafter> inner_;
  int64_t calls_ = 0;
};

TEST_P(SpeculationNeverChangesTokens, FailedBestDrafterIsNoLongerChosen) {
  for (const char* algorithm : {"ADAPTIVE", "BEG"}) {
    std::vector<std::unique_ptr<drafter::Drafter>> drafters;
    drafters.push_back(std::make_unique<ShortLivedDrafter>(oracle(1)));
    drafters.push_back(oracle(0.8));
    const TickingClock clock;
    Speculation speculation = tuned(clock, std::move(drafters), algorithm, vocabulary());
    Engine engine(*model_, crowd(), nullptr, nullptr, &speculation);
    // The other drafter is good, too: a tuner may need more than a short rollout to find the better
    // one.
    constexpr int kMostRollouts = 20;
    for (int i = 0; i < kMostRollouts && !speculation.stats_of(0).failed; ++i)
      EXPECT_EQ(difference_of_tokens(plain_, run(engine, groups())), "") << algorithm;
    EXPECT_TRUE(speculation.stats_of(0).failed) << algorithm;
    EXPECT_EQ(speculation.stats_of(0).steps, 4) << algorithm << ": it is not used again";
    EXPECT_GT(speculation.stats_of(1).accepted_tokens, 0) << algorithm;
    for (const speculation::Arm& arm : speculation.tuner()->arms())
      EXPECT_NE(arm.kind, "short-lived");
  }
}

TEST_P(SpeculationNeverChangesTokens, FailedDrafterLeavesTheMixedTree) {
  for (const bool is_fixed : {true, false}) {
    std::vector<std::unique_ptr<drafter::Drafter>> drafters;
    drafters.push_back(std::make_unique<BrokenDrafter>(BrokenDrafter::Break::kThrow));
    drafters.push_back(oracle(0.8));
    const TickingClock clock;
    const auto speculation =
        is_fixed
            ? std::make_unique<Speculation>(std::move(drafters), Strategy{8, 4, 16}, vocabulary())
            : std::unique_ptr<Speculation>(new Speculation(
                  tuned(clock, std::move(drafters), "ADAPTIVE", vocabulary(), {"mixed"})));
    Engine engine(*model_, crowd(), nullptr, nullptr, speculation.get());
    EXPECT_EQ(difference_of_tokens(plain_, run(engine, groups())), "");
    EXPECT_TRUE(speculation->stats_of(0).failed);
    EXPECT_FALSE(speculation->stats_of(1).failed);
    EXPECT_FALSE(speculation->stats_of(2).failed);
    EXPECT_GT(speculation->stats_of(2).accepted_tokens, 20);
    EXPECT_LT(speculation->stats_of(0).mixed_drafted, 20) << "the failed one is not used again";
    EXPECT_LE(speculation->stats_of(2).accepted_tokens,
              speculation->stats_of(0).mixed_accepted + speculation->stats_of(1).mixed_accepted);
  }
}

// In a mixed tree the accepted draft tokens of each drafter are counted.
TEST_P(SpeculationNeverChangesTokens, DraftersOfAMixedTreeAreCounted) {
  std::vector<std::unique_ptr<drafter::Drafter>> drafters;
  drafters.push_back(oracle(1));
  drafters.push_back(oracle(0, /*seed=*/2));
  Speculation speculation(std::move(drafters), {8, 4, 32}, vocabulary());
  Engine engine(*model_, crowd(), nullptr, nullptr, &speculation);
  EXPECT_EQ(difference_of_tokens(plain_, run(engine, groups())), "");
  const rollout::DraftStats &accurate = speculation.stats_of(0),
                            &inaccurate = speculation.stats_of(1), &mixed = speculation.stats_of(2);
  EXPECT_EQ(accurate.steps + inaccurate.steps, 0) << "they were not used alone";
  EXPECT_GT(mixed.accepted_tokens, 100);
  EXPECT_GE(accurate.mixed_accepted + inaccurate.mixed_accepted, mixed.accepted_tokens);
  EXPECT_GE(accurate.mixed_drafted + inaccurate.mixed_drafted, mixed.drafted_tokens);
  EXPECT_GT(accurate.mixed_accepted, 10 * inaccurate.mixed_accepted);
}

TEST_P(SpeculationNeverChangesTokens, OneSequenceAtATimeOnTwoThreads) {
  const auto threaded = make_tiny_model(tiny_config(family()), type(), test_device(2));
  EngineOptions options = crowd();
  options.max_running = 1;
  Speculation speculation(oracle(0.9), {8, 4, 16}, vocabulary());
  Engine engine(*threaded, options, nullptr, nullptr, &speculation);
  EXPECT_EQ(difference_of_tokens(plain_, run(engine, groups())), "");
}

// The observer gets the same hidden states as in non-speculative decoding, every position once and
// in order.
class RecordingObserver final : public rollout::HiddenStateObserver {
 public:
  explicit RecordingObserver(rollout::Layers layers) : layers_(std::move(layers)) {}

  rollout::Layers layers() const override { return layers_; }
  void on_hidden_states(uint32_t prompt_id, uint32_t sample, int32_t position, const Rows& hidden,
                        std::span<const int32_t> tokens) override {
    auto& [next, states, seen] = of_[{prompt_id, sample}];
    EXPECT_TRUE(seen.empty() || position == next) << position;
    next = position + static_cast<int32_t>(tokens.size());
    states.push_back(hidden.states.narrow(0, hidden.first, std::ssize(tokens)).clone());
    seen.insert(seen.end(), tokens.begin(), tokens.end());
  }
  void expect_equal(const RecordingObserver& other) const {
    ASSERT_EQ(of_.size(), other.of_.size());
    for (const auto& [place, mine] : of_) {
      const auto& theirs = other.of_.at(place);
      EXPECT_EQ(mine.tokens, theirs.tokens) << place.first << " " << place.second;
      EXPECT_TRUE(at::equal(at::cat(mine.states), at::cat(theirs.states)))
          << place.first << " " << place.second;
    }
  }
  // The last `size` columns are exactly the other's hidden states.
  void expect_ends_with(const RecordingObserver& other, int64_t size) const {
    for (const auto& [place, mine] : of_) {
      const at::Tensor states = at::cat(mine.states);
      EXPECT_EQ(states.size(1), std::ssize(layers_) * size);
      EXPECT_TRUE(at::equal(states.narrow(1, states.size(1) - size, size),
                            at::cat(other.of_.at(place).states)));
    }
  }

 private:
  struct Observed {
    int32_t next = 0;
    std::vector<at::Tensor> states;
    std::vector<int32_t> tokens;
  };
  const rollout::Layers layers_;
  std::map<std::pair<uint32_t, uint32_t>, Observed> of_;
};

TEST_P(SpeculationNeverChangesTokens, HiddenStatesAreTheSame) {
  const rollout::Layers layers = {0, 1, model_->config().layers};
  RecordingObserver plain(layers), speculative(layers), final({});
  Engine without(*model_, crowd(), nullptr, &plain);
  run(without, groups());
  Engine of_final(*model_, crowd(), nullptr, &final);
  run(of_final, groups());
  plain.expect_ends_with(final, model_->config().hidden);
  Speculation speculation(oracle(0.8), {8, 4, 16}, vocabulary());
  EngineOptions options = crowd();
  options.kv_memory_bytes = 12 * model_->kv_shape().page_bytes();
  Engine with(*model_, options, nullptr, &speculative, &speculation);
  run(with, groups());
  speculative.expect_equal(plain);
}

TEST_P(SpeculationNeverChangesTokens, WithAFailingDrafter) {
  using Break = BrokenDrafter::Break;
  for (const Break how :
       {Break::kThrow, Break::kOrder, Break::kToken, Break::kDepth, Break::kSize}) {
    Speculation speculation(std::make_unique<BrokenDrafter>(how), {3, 4, 10}, vocabulary());
    Engine engine(*model_, crowd(), nullptr, nullptr, &speculation);
    EXPECT_EQ(difference_of_tokens(plain_, run(engine, groups())), "") << static_cast<int>(how);
    EXPECT_TRUE(speculation.stats().failed) << static_cast<int>(how);
  }
}

// Negative control: a planted fault is detected.
TEST_P(SpeculationNeverChangesTokens, DetectsAPlantedFault) {
  const auto with = [&](Fault fault) {
    Speculation speculation(oracle(0.8), {8, 4, 16}, vocabulary());
    EngineOptions options = crowd();
    options.max_batch_tokens = 1000;
    return difference_of_tokens(plain_,
                                HandEngine(*model_, options, fault, &speculation).run(groups()));
  };
  EXPECT_EQ(with(Fault::kNone), "");
  EXPECT_NE(with(Fault::kWrongAncestor), "");
  EXPECT_NE(with(Fault::kWrongDepth), "");
  EXPECT_NE(with(Fault::kForgottenPath), "");
}

INSTANTIATE_TEST_SUITE_P(Models, SpeculationNeverChangesTokens, every_model(), model_name);

}  // namespace
}  // namespace tlt::tests
