// SPDX-License-Identifier: Apache-2.0
//
// The three rules; how well it chooses is in tuner_test.cpp.
#include "speculation/adaptive_chooser.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/random.h"

namespace tlt::speculation {
namespace {

constexpr size_t kOffArm = 0;
const std::vector<Arm> kArms = {{}, {"eagle", {2, 1, 3}}, {"suffix", {2, 1, 3}}};

// Forward passes take a second, whatever the rows; a proposal next to nothing.
AdaptiveChooser make_chooser(const std::vector<Arm>& arms = kArms) {
  return AdaptiveChooser(arms, {.costs = CostTable({{1, 1, 1}}, {})});
}

// Plays `steps` at batch size 8: an arm's trees are chains of two, `depth(arm)` of them accepted,
// and the step takes `seconds(arm)`. Returns the arms.
std::vector<size_t> play(AdaptiveChooser& chooser, int steps,
                         const std::function<int32_t(size_t)>& depth,
                         const std::function<double(size_t)>& seconds) {
  const std::vector<drafter::DraftNode> nodes = {{1, -1, 1, 0.5f}, {1, 0, 2, 0.4f}};
  std::vector<size_t> arms;
  for (int step = 0; step < steps; ++step) {
    const size_t arm = chooser.choose(8, 0);
    StepOutcome outcome{.batch = 8, .tokens = 8, .trees = {}, .seconds = seconds(arm)};
    const std::vector<drafter::VerifiedTree> trees(
        chooser.is_exploration() ? kExplorationSequences : 8, {nodes, depth(arm) - 1});
    if (arm != kOffArm) outcome.trees = trees;
    chooser.record(arm, outcome);
    arms.push_back(arm);
  }
  return arms;
}

// The arm most often among the last 50.
size_t most_played(const std::vector<size_t>& arms) {
  std::vector<int> plays(kArms.size());
  for (size_t i = arms.size() - 50; i < arms.size(); ++i) ++plays[arms[i]];
  return static_cast<size_t>(std::ranges::max_element(plays) - plays.begin());
}

int changes(const std::vector<size_t>& arms) {
  int count = 0;
  for (size_t i = 1; i < arms.size(); ++i) count += arms[i] != arms[i - 1];
  return count;
}

TEST(AdaptiveChooserTest, TakesOverAtOnceWhenClearlyBetterAndLaterWhenSlightlyBetter) {
  // Both drafters give three tokens; the other one becomes faster by this factor.
  const auto steps_until_taken = [&](double faster) {
    AdaptiveChooser chooser = make_chooser();
    const auto three = [](size_t) { return 2; };
    const auto even = [](size_t) { return 1.0; };
    const size_t first = play(chooser, 400, three, even).back();
    EXPECT_NE(first, kOffArm);
    // Told, not tried.
    const std::vector<drafter::DraftNode> nodes = {{1, -1, 1, 0.5f}, {1, 0, 2, 0.4f}};
    const std::vector<drafter::VerifiedTree> trees(8, {nodes, 1});
    const size_t other = 3 - first;
    for (int i = 0; i < 2000; ++i) {
      chooser.record(first, {.batch = 8, .tokens = 24, .trees = trees, .seconds = 1});
      chooser.record(other, {.batch = 8, .tokens = 24, .trees = trees, .seconds = 1 / faster});
    }
    std::vector<size_t> arms =
        play(chooser, 100, three, [&](size_t arm) { return arm == other ? 1 / faster : 1.0; });
    std::erase(arms, kOffArm);                                // tried for itself
    const auto run = std::ranges::search_n(arms, 20, other);  // not a try
    return run.begin() - arms.begin();
  };
  EXPECT_LE(steps_until_taken(1.05), 8);  // when it chooses again
  EXPECT_GE(steps_until_taken(1.02), 8);
  EXPECT_LE(steps_until_taken(1.02), 40);
}

// Speculation is faster for one sequence and not for eight, of which one ends or begins at every
// step.
TEST(AdaptiveChooserTest, PlainStepsStayThoughSequencesEnd) {
  const std::vector<Arm> arms = {{}, {"eagle", {2, 1, 3}}};
  const CostTable costs({{1, 1, 1}, {1, 3, 1}, {8, 8, 1}, {8, 24, 3}}, {});
  const std::vector<drafter::DraftNode> nodes = {{1, -1, 1, 0.5f}, {1, 0, 2, 0.4f}};
  const auto play = [&](AdaptiveChooser& chooser, int64_t batch) {
    const size_t arm = chooser.choose(batch, 0);
    StepOutcome outcome{.batch = batch, .tokens = batch, .trees = {}, .seconds = 1};
    const std::vector<drafter::VerifiedTree> trees(
        static_cast<size_t>(chooser.is_exploration() ? kExplorationSequences : batch), {nodes, 1});
    if (arm != kOffArm) {
      outcome.trees = trees;
      outcome.tokens += 2 * std::ssize(trees);
      outcome.seconds =
          costs.target_seconds(static_cast<double>(outcome.rows()), static_cast<double>(batch));
    }
    chooser.record(arm, outcome);
    return arm;
  };
  AdaptiveChooser chooser(arms, {.costs = costs});
  for (int step = 0; step < 200; ++step) play(chooser, 1);
  for (int step = 0; step < 200; ++step) play(chooser, 8);
  int plain = 0;
  while (plain < 100 && play(chooser, 1) == kOffArm) ++plain;
  EXPECT_LE(plain, 16);
  // While `off` is the current arm, all are evaluated once in 16 steps.
  for (int step = 0; step < 100; ++step) play(chooser, 8);
  int in_a_row = 0, most = 0;
  for (int step = 0; step < 64; ++step) {
    in_a_row = play(chooser, step % 2 == 0 ? 8 : 1) == kOffArm ? in_a_row + 1 : 0;
    most = std::max(most, in_a_row);
  }
  EXPECT_GE(most, 8);
}

TEST(AdaptiveChooserTest, NoiseDoesNotMakeEqualArmsTakeTurns) {
  AdaptiveChooser chooser = make_chooser();
  RandomStream random(6, {});
  const auto noisy = [&](size_t) { return std::exp(0.1 * random.normal()); };
  const auto depth = [&](size_t) { return static_cast<int32_t>(random.below(3)); };
  play(chooser, 500, depth, noisy);
  EXPECT_LT(changes(play(chooser, 1000, depth, noisy)), 80);  // tries, there and back, included
}

TEST(AdaptiveChooserTest, ExplorationStaysInItsShareOfTheTime) {
  AdaptiveChooser chooser = make_chooser();
  RandomStream random(6, {});
  // The suffix drafter is always in doubt: from time to time it is better.
  const auto depth = [&](size_t arm) {
    return arm == 1 ? 2 : static_cast<int32_t>(random.below(3));
  };
  const auto seconds = [&](size_t) { return std::exp(0.3 * random.normal()); };
  for (int round = 0; round < 20; ++round) {
    play(chooser, 200, depth, seconds);
    EXPECT_LE(chooser.explored_share(), 0.02) << round;
  }
}

// A step with an interruption, a hundred times as long, was once what kept it from trying.
TEST(AdaptiveChooserTest, InterruptedTryDoesNotUseUpTheShare) {
  AdaptiveChooser chooser = make_chooser();
  bool interrupted = false;
  play(
      chooser, 300, [](size_t arm) { return arm == 1 ? 2 : 1; },
      [&](size_t arm) {
        if (arm != 2 || interrupted) return 1.0;
        interrupted = true;
        return 100.0;
      });
  EXPECT_TRUE(interrupted);
  EXPECT_LT(chooser.explored_share(), 0.02);
}

// If `off` were explored in a transient slowdown only, it would never become current again.
TEST(AdaptiveChooserTest, OffIsExploredAgainAfterASlowdown) {
  AdaptiveChooser chooser = make_chooser();
  const auto two = [](size_t arm) { return arm == kOffArm ? 0 : 1; };
  RandomStream random(6, {});
  const auto noisy = [&](double seconds) { return seconds * std::exp(0.1 * random.normal()); };
  const auto slow = [&](size_t arm) { return noisy(arm == kOffArm ? 2.0 : 2.4); };
  const auto later = [&](size_t arm) { return noisy(arm == kOffArm ? 1.0 : 2.4); };
  EXPECT_NE(most_played(play(chooser, 600, two, slow)), kOffArm);
  EXPECT_EQ(most_played(play(chooser, 3000, two, later)), kOffArm);
}

// The machine becomes faster exactly when speculation is played for the first time: the whole gain
// looks like speculation's. Exploring `off` must correct this, however long it was slow.
TEST(AdaptiveChooserTest, ExplorationOfOffCorrectsASlowdown) {
  AdaptiveChooser chooser = make_chooser();
  const auto two = [](size_t arm) { return arm == kOffArm ? 0 : 1; };
  RandomStream random(6, {});
  const auto noisy = [&](double seconds) { return seconds * std::exp(0.05 * random.normal()); };
  const std::vector<drafter::DraftNode> nodes = {{1, -1, 1, 0.5f}, {1, 0, 2, 0.4f}};
  const std::vector<drafter::VerifiedTree> trees(8, {nodes, 0});
  for (int i = 0; i < 400; ++i)
    chooser.record(kOffArm, {.batch = 8, .tokens = 8, .trees = {}, .seconds = noisy(2)});
  for (int i = 0; i < 300; ++i)
    chooser.record(1, {.batch = 8, .tokens = 16, .trees = trees, .seconds = noisy(2.4)});
  const auto later = [&](size_t arm) { return noisy(arm == kOffArm ? 1.0 : 2.4); };
  const std::vector<size_t> arms = play(chooser, 4500, two, later);
  EXPECT_NE(arms.front(), kOffArm);
  EXPECT_EQ(most_played(arms), kOffArm);
}

TEST(AdaptiveChooserTest, GuessesInDoubtAreTriedForAFewSequences) {
  AdaptiveChooser chooser = make_chooser();
  int64_t for_few = 0;
  for (int step = 0; step < 200; ++step) {
    const size_t arm = chooser.choose(64, 0);
    const bool is_exploration = chooser.is_exploration();
    EXPECT_FALSE(is_exploration && arm == kOffArm);
    for_few += is_exploration;
    const std::vector<drafter::DraftNode> nodes = {{1, -1, 1, 0.5f}};
    const std::vector<drafter::VerifiedTree> trees(is_exploration ? kExplorationSequences : 64,
                                                   {nodes, -1});
    StepOutcome outcome{
        .batch = 64, .tokens = 64, .trees = {}, .seconds = arm == kOffArm ? 1 : 2.0};
    if (arm != kOffArm) outcome.trees = trees;
    chooser.record(arm, outcome);
  }
  EXPECT_GE(for_few, 2);
  chooser.choose(kExplorationSequences, 0);
  EXPECT_FALSE(chooser.is_exploration()) << "these are all";
}

TEST(AdaptiveChooserTest, TriesOfAHopelessDrafterBecomeRare) {
  AdaptiveChooser chooser = make_chooser();
  const auto useless = [](size_t) { return 0; };
  const auto seconds = [](size_t arm) { return arm == kOffArm ? 1.0 : 1.5; };
  std::vector<int64_t> tries;
  for (const int steps : {1000, 4000, 16000}) {
    const std::vector<size_t> arms = play(chooser, steps, useless, seconds);
    tries.push_back(steps - std::ranges::count(arms, kOffArm));
  }
  EXPECT_LT(tries[0], 40);  // 1 % of the time, and the first ones
  EXPECT_LT(tries[1], 40);
  EXPECT_LT(tries[2], 40);  // 0.25 %
  EXPECT_GE(tries[2], 2);
}

TEST(AdaptiveChooserTest, HopelessDrafterIsTriedAgainAndTakenWhenItBecameGood) {
  AdaptiveChooser chooser = make_chooser();
  const auto seconds = [](size_t arm) { return arm == kOffArm ? 1.0 : 1.5; };
  const auto useless = [](size_t) { return 0; };
  const auto good = [](size_t) { return 2; };
  EXPECT_EQ(most_played(play(chooser, 1000, useless, seconds)), kOffArm);
  EXPECT_NE(most_played(play(chooser, 20000, good, seconds)), kOffArm);
  EXPECT_EQ(most_played(play(chooser, 1000, useless, seconds)), kOffArm);
  chooser.new_weights();
  EXPECT_NE(most_played(play(chooser, 200, good, seconds)), kOffArm);
}

TEST(AdaptiveChooserTest, NewWeightsLeaveTheCosts) {
  AdaptiveChooser chooser = make_chooser();
  play(
      chooser, 300, [](size_t) { return 1; }, [](size_t arm) { return arm == 1 ? 1.3 : 1.6; });
  const double tokens = chooser.expected_tokens(1, 8), seconds = chooser.expected_seconds(1, 8);
  chooser.new_weights();
  EXPECT_NEAR(chooser.expected_tokens(1, 8), tokens, 1e-3);
  EXPECT_EQ(chooser.expected_seconds(1, 8), seconds);
  EXPECT_NEAR(seconds, 1.3, 0.02);
}

TEST(AdaptiveChooserTest, NewWeightsMakeItLearnAnew) {
  const std::vector<drafter::DraftNode> nodes = {{1, -1, 1, 0.5f}, {1, 0, 2, 0.4f}};
  const std::vector<drafter::VerifiedTree> good(8, {nodes, 1}), bad(8, {nodes, -1});
  const StepOutcome after{.batch = 8, .tokens = 8, .trees = bad, .seconds = 1};
  double tokens[2];
  for (const bool told : {false, true}) {
    AdaptiveChooser chooser = make_chooser();
    for (int i = 0; i < 500; ++i)
      chooser.record(1, {.batch = 8, .tokens = 24, .trees = good, .seconds = 1});
    if (told) chooser.new_weights();
    chooser.record(1, after);
    tokens[told] = chooser.expected_tokens(1, 8);
  }
  EXPECT_GT(tokens[false], 2.9);
  EXPECT_LT(tokens[true], 2.2);
}

TEST(AdaptiveChooserTest, RestoredChooserIsTheSame) {
  AdaptiveChooser chooser = make_chooser(), resumed = make_chooser();
  RandomStream random(6, {});
  const auto noisy = [&](size_t) { return std::exp(0.1 * random.normal()); };
  const auto depth = [&](size_t) { return static_cast<int32_t>(random.below(3)); };
  for (int i = 0; i < 20000 && chooser.save().at("advantage") == 0.0; ++i)
    play(chooser, 1, depth, noisy);
  const nlohmann::json state = chooser.save();
  EXPECT_GT(state.at("advantage"), 0.0);
  resumed.restore(nlohmann::json::parse(state.dump()));
  EXPECT_EQ(resumed.save(), state);
}

TEST(AdaptiveChooserTest, StepsWithPromptRowsTeachTokensOnly) {
  AdaptiveChooser chooser = make_chooser();
  play(
      chooser, 100, [](size_t) { return 1; }, [](size_t) { return 1.0; });
  const std::vector<drafter::DraftNode> nodes = {{1, -1, 1, 0.5f}, {1, 0, 2, 0.4f}};
  const std::vector<drafter::VerifiedTree> trees(8, {nodes, 1});
  const double tokens = chooser.expected_tokens(1, 8), seconds = chooser.expected_seconds(1, 8);
  for (int i = 0; i < 10; ++i)
    chooser.record(
        1, {.batch = 8, .tokens = 24, .trees = trees, .seconds = 50, .has_prompt_rows = true});
  EXPECT_EQ(chooser.expected_seconds(1, 8), seconds);
  EXPECT_GT(chooser.expected_tokens(1, 8), tokens);
}

TEST(AdaptiveChooserTest, OffIsNeeded) {
  EXPECT_THROW(make_chooser({{"eagle", {2, 1, 3}}}), Error);
}

}  // namespace
}  // namespace tlt::speculation
