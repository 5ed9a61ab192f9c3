// SPDX-License-Identifier: Apache-2.0
//
// The parts of the model; how well it chooses is in tuner_test.cpp.
#include "speculation/throughput_model.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/random.h"

namespace tlt::speculation {
namespace {

constexpr size_t kOffArm = 0;
const std::vector<Arm> kArms = {{}, {"eagle", {2, 1, 3}}, {"suffix", {2, 1, 3}}};

// Forward passes take a second, whatever the rows; drafting two tokens takes half a second.
CostTable make_costs() {
  return CostTable({{1, 1, 1}}, {{"eagle", {2, 1, 3}, 1, 0.5}, {"suffix", {2, 1, 3}, 1, 0.5}});
}

ThroughputModel make_model(const std::vector<Arm>& arms = kArms) {
  return ThroughputModel(arms, make_costs(), 2048);
}

std::vector<drafter::DraftNode> chain(int32_t length) {
  std::vector<drafter::DraftNode> nodes;
  for (int32_t i = 0; i < length; ++i) nodes.push_back({i, i - 1, i + 1, 0.5f});
  return nodes;
}

// Records `steps` steps of the arm, with these trees.
void teach(ThroughputModel& model, size_t arm, std::span<const drafter::VerifiedTree> trees,
           int steps) {
  for (int i = 0; i < steps; ++i)
    model.record(
        arm, {.batch = std::ssize(trees), .trees = trees, .seconds = 1.5, .draft_seconds = 0.5});
}

// Plays `steps` at batch size 8: an arm's trees are chains of two, `depth(arm)` of them accepted.
// Returns the arms.
std::vector<size_t> play(ThroughputModel& model, int steps,
                         const std::function<int32_t(size_t)>& depth) {
  const std::vector<drafter::DraftNode> nodes = chain(2);
  std::vector<size_t> arms;
  for (int step = 0; step < steps; ++step) {
    const size_t arm = model.choose(8, 0);
    std::vector<drafter::VerifiedTree> trees;
    StepOutcome outcome{.batch = 8, .tokens = 8, .trees = {}, .seconds = 1};
    for (int64_t i = 0; arm != kOffArm && i < (model.is_exploration() ? 4 : 8); ++i) {
      trees.push_back({nodes, depth(arm) - 1});
      outcome.tokens += trees.back().accepted_depth();
    }
    outcome.trees = trees;
    outcome.draft_seconds = arm == kOffArm ? 0 : 0.5;
    outcome.seconds += outcome.draft_seconds;
    model.record(arm, outcome);
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

// A tree of eight nodes: a chain of four first choices, and a second choice next to each.
std::vector<drafter::DraftNode> spine() {
  std::vector<drafter::DraftNode> nodes;
  for (int32_t depth = 1; depth <= 4; ++depth) {
    const int32_t parent = depth == 1 ? -1 : 2 * depth - 4;
    const float reached = std::pow(0.5f, static_cast<float>(depth));
    nodes.push_back({2 * depth, parent, depth, reached});
    nodes.push_back({2 * depth + 1, parent, depth, reached / 2});
  }
  return nodes;
}

TEST(ThroughputModelTest, FirstChoicesOfTreesTellOfChains) {
  const std::vector<Arm> arms = {
      {}, {"eagle", {4, 2, 9}}, {"eagle", {4, 1, 5}}, {"eagle", {1, 1, 2}}};
  ThroughputModel model = make_model(arms);
  const std::vector<drafter::DraftNode> nodes = spine();
  // All four first choices accepted, or the second choice of the second level, or nothing.
  const std::vector<drafter::VerifiedTree> trees = {
      {nodes, 6}, {nodes, 3}, {nodes, -1}, {nodes, -1}};
  teach(model, 1, trees, 500);
  EXPECT_NEAR(model.expected_tokens(1, 4), 1 + (4 + 2) / 4.0, 0.02);
  EXPECT_NEAR(model.expected_tokens(2, 4), 1 + (4 + 1) / 4.0, 0.02);
  EXPECT_NEAR(model.expected_tokens(3, 4), 1 + 2 / 4.0, 0.02);
}

TEST(ThroughputModelTest, TreesTellWhatSmallerOnesAccept) {
  const std::vector<Arm> arms = {
      {}, {"eagle", {2, 3, 7}}, {"eagle", {2, 2, 5}}, {"eagle", {1, 3, 4}}, {"eagle", {2, 3, 3}}};
  ThroughputModel model = make_model(arms);
  // Three children of the root, and three of the first of them.
  const std::vector<drafter::DraftNode> nodes = {{0, -1, 1, 0.5f}, {1, -1, 1, 0.3f},
                                                 {2, -1, 1, 0.2f}, {3, 0, 2, 0.25f},
                                                 {4, 0, 2, 0.1f},  {5, 0, 2, 0.05f}};
  const std::vector<drafter::VerifiedTree> trees = {{nodes, 2}, {nodes, 2}, {nodes, 3}, {nodes, 1}};
  teach(model, 1, trees, 500);
  const double want[] = {1, 2.25, 1.75, 2, 1.5};
  for (size_t arm = 0; arm < arms.size(); ++arm)
    EXPECT_NEAR(model.expected_tokens(arm, 4), want[arm], 0.02) << to_string(arms[arm].strategy);
}

TEST(ThroughputModelTest, DeeperLevelsContinueLikeTheLast) {
  const std::vector<Arm> arms = {{}, {"eagle", {2, 1, 3}}, {"eagle", {4, 1, 5}}};
  ThroughputModel model = make_model(arms);
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const std::vector<drafter::VerifiedTree> trees = {
      {nodes, 1}, {nodes, 1}, {nodes, 0}, {nodes, -1}};
  teach(model, 1, trees, 500);
  const double first = 3 / 4.0, second = 2 / 3.0;
  EXPECT_NEAR(model.expected_tokens(1, 4), 1 + first + first * second, 0.01);
  EXPECT_NEAR(model.expected_tokens(2, 4),
              1 + first * (1 + second + second * second + second * second * second), 0.02);
}

TEST(ThroughputModelTest, AcceptanceIsLearnedByPosition) {
  ThroughputModel model = make_model();
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const std::vector<drafter::VerifiedTree> early = {{nodes, 1, 100}}, late = {{nodes, -1, 9000}};
  const auto tokens_at = [&](std::array<int64_t, kPositions> positions) {
    Load load(8);
    load.positions = positions;
    return model.expected_tokens(1, load);
  };
  teach(model, 1, early, 200);
  EXPECT_GT(tokens_at({0, 8, 0, 0}), 2.2) << "like its neighbour, while unknown";
  for (int i = 0; i < 200; ++i) teach(model, 1, early, 1), teach(model, 1, late, 1);
  const double at_first = tokens_at({8, 0, 0, 0}), at_last = tokens_at({0, 0, 0, 8});
  EXPECT_GT(at_first, 2.9);
  EXPECT_LT(at_last, 1.1);
  EXPECT_NEAR(tokens_at({6, 0, 0, 2}), (6 * at_first + 2 * at_last) / 8, 1e-9) << "a mix";
  EXPECT_LT(tokens_at({0, 0, 8, 0}), 2) << "the nearest known one is the last";
}

TEST(ThroughputModelTest, ADrafterWithoutProposalsAcceptsNothing) {
  ThroughputModel model = make_model();
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const std::vector<drafter::VerifiedTree> trees = {{nodes, 1}, {}, {}, {}};
  teach(model, 1, trees, 500);
  EXPECT_NEAR(model.expected_tokens(1, 4), 1 + 2 / 4.0, 0.01);
}

// Trees are pruned at large batch sizes.
TEST(ThroughputModelTest, RowsAreThoseThatWereVerified) {
  const std::vector<Arm> arms = {{}, {"eagle", {2, 1, 3}}};
  const CostTable costs({{1, 1, 1}, {1, 101, 101}}, {});
  ThroughputModel model(arms, costs, 2048);
  EXPECT_NEAR(model.expected_seconds(1, 8), 3 * 8, 1e-9);
  const std::vector<drafter::DraftNode> nodes = chain(1);
  const std::vector<drafter::VerifiedTree> trees(8, {nodes, 0});
  for (int i = 0; i < 300; ++i)
    model.record(1, {.batch = 8, .trees = trees, .seconds = i % 2 == 0 ? 15.5 : 16.5});
  EXPECT_NEAR(model.expected_seconds(1, 8), 2 * 8, 0.5);
}

TEST(ThroughputModelTest, SpeedFollowsTheMedianOfTheSteps) {
  ThroughputModel model = make_model();
  RandomStream random(1, {});
  for (int i = 0; i < 1000; ++i) {
    const double outlier = random.uniform() < 0.05 ? 100 : 1;
    model.record(
        kOffArm,
        {.batch = 4, .trees = {}, .seconds = 3 * outlier * std::exp(0.1 * random.normal())});
  }
  EXPECT_NEAR(model.expected_seconds(kOffArm, 4), 3, 0.3);
}

// The table has no draft seconds for a drafter that was not measured.
TEST(ThroughputModelTest, DraftSecondsAreLearnedInUse) {
  ThroughputModel model({{}, {"suffix", {2, 1, 3}}}, CostTable({{1, 1, 1}}, {}), 2048);
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const std::vector<drafter::VerifiedTree> trees(8, {nodes, 1});
  for (int i = 0; i < 400; ++i) {
    const double noise = i % 2 == 0 ? 0.99 : 1.01;
    model.record(1, {.batch = 8, .trees = trees, .seconds = 1.4 * noise, .draft_seconds = 0.4});
  }
  EXPECT_NEAR(model.expected_seconds(1, 8) / model.expected_seconds(kOffArm, 8), 1.4, 0.05);
}

TEST(ThroughputModelTest, StepsWithPromptRowsTeachTokensOnly) {
  ThroughputModel model = make_model();
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const std::vector<drafter::VerifiedTree> trees(8, {nodes, 1});
  const double tokens = model.expected_tokens(1, 8), seconds = model.expected_seconds(kOffArm, 8);
  for (int i = 0; i < 10; ++i)
    model.record(1, {.batch = 8, .trees = trees, .seconds = 50, .has_prompt_rows = true});
  EXPECT_EQ(model.expected_seconds(kOffArm, 8), seconds);
  EXPECT_GT(model.expected_tokens(1, 8), tokens);
}

TEST(ThroughputModelTest, SwitchesWhenClearlyBetterOnly) {
  // Every tree gives two tokens; then one in `period` of the other arm gives three.
  const auto switches = [&](int period) {
    ThroughputModel model = make_model();
    const size_t first = most_played(play(model, 400, [](size_t) { return 1; }));
    EXPECT_NE(first, kOffArm);
    const std::vector<drafter::DraftNode> nodes = chain(2);
    std::vector<drafter::VerifiedTree> more(static_cast<size_t>(period), {nodes, 0});
    more.back().accepted = 1;
    const std::vector<drafter::VerifiedTree> same(static_cast<size_t>(period), {nodes, 0});
    for (int i = 0; i < 1000; ++i) teach(model, first, same, 1), teach(model, 3 - first, more, 1);
    int trees = 0;
    const auto later = [&](size_t arm) { return arm != first && ++trees % period == 0 ? 2 : 1; };
    return most_played(play(model, 100, later)) != first;
  };
  EXPECT_FALSE(switches(50));  // 1 %
  EXPECT_TRUE(switches(8));    // 6 %
}

TEST(ThroughputModelTest, NoiseDoesNotMakeEqualArmsTakeTurns) {
  ThroughputModel model = make_model();
  RandomStream random(6, {});
  const auto depth = [&](size_t) { return static_cast<int32_t>(random.below(3)); };
  play(model, 500, depth);
  const std::vector<size_t> arms = play(model, 1000, depth);
  int changes = 0;
  for (size_t i = 1; i < arms.size(); ++i) changes += arms[i] != arms[i - 1];
  EXPECT_LT(changes, 80);  // trials, there and back, included
}

TEST(ThroughputModelTest, TrialsAreForAFewSequences) {
  ThroughputModel model = make_model();
  EXPECT_NE(model.choose(64, 0), kOffArm);
  EXPECT_TRUE(model.is_exploration());
  ThroughputModel small = make_model();
  EXPECT_NE(small.choose(kExplorationSequences, 0), kOffArm);
  EXPECT_FALSE(small.is_exploration()) << "these are all";
}

TEST(ThroughputModelTest, TrialsOfAHopelessDrafterBecomeRare) {
  ThroughputModel model = make_model();
  const auto useless = [](size_t) { return 0; };
  std::vector<int64_t> tries;
  for (const int steps : {1000, 4000, 16000}) {
    const std::vector<size_t> arms = play(model, steps, useless);
    tries.push_back(steps - std::ranges::count(arms, kOffArm));
  }
  EXPECT_LT(tries[0], 40);  // 1 % of the time, and the first ones
  EXPECT_LT(tries[1], 40);
  EXPECT_LT(tries[2], 40);  // 0.25 %
  EXPECT_GE(tries[2], 2);
}

// An arm is never as good as it may be, so trials never end.
TEST(ThroughputModelTest, ExplorationCostsOnePercent) {
  ThroughputModel model({{}, {"eagle", {8, 1, 9}}, {"suffix", {8, 1, 9}}},
                        CostTable({{1, 1, 1}, {1, 201, 1.5}}, {}), 2048);
  const std::vector<drafter::DraftNode> nodes = chain(8);
  int tries = 0;
  for (int step = 0; step < 10000; ++step) {
    if (step % 20 == 0) model.new_weights();  // resets the waits
    const size_t arm = model.choose(4, 0);
    const std::vector<drafter::VerifiedTree> trees(arm == kOffArm ? 0 : 4, {nodes, -1});
    model.record(arm, {.batch = 4, .tokens = 4, .trees = trees, .seconds = 1});
    tries += arm != kOffArm;
  }
  // A step of a trial has 36 rows and not 4, of 1 / 400 s each.
  const double lost = (1 + 35 / 400.0) / (1 + 3 / 400.0) - 1;
  EXPECT_LT(lost * tries, 0.01 * 10000 + 12 + 2 * lost);
  EXPECT_GT(lost * tries, 0.002 * 10000);
}

TEST(ThroughputModelTest, HopelessDrafterIsTakenWhenItBecameGood) {
  ThroughputModel model = make_model();
  const auto useless = [](size_t) { return 0; };
  const auto good = [](size_t) { return 2; };
  EXPECT_EQ(most_played(play(model, 1000, useless)), kOffArm);
  EXPECT_NE(most_played(play(model, 20000, good)), kOffArm);
  EXPECT_EQ(most_played(play(model, 1000, useless)), kOffArm);
  model.new_weights();
  EXPECT_NE(most_played(play(model, 200, good)), kOffArm);
}

// A step with the arm that the model chooses: at most four trees of two nodes, all rejected.
size_t play_rejected(ThroughputModel& model, int64_t batch, double draft_seconds = 0.5) {
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const size_t arm = model.choose(batch, 0);
  const std::vector<drafter::VerifiedTree> trees(arm == kOffArm ? 0 : 4, {nodes, -1});
  StepOutcome outcome{.batch = batch, .tokens = batch, .trees = trees, .seconds = 1};
  outcome.draft_seconds = arm == kOffArm ? 0 : draft_seconds;
  outcome.seconds += outcome.draft_seconds;
  model.record(arm, outcome);
  return arm;
}

TEST(ThroughputModelTest, ATrialThatNoLongerFitsEnds) {
  // Three token rows a sequence: 16 sequences fit, and 17 do not.
  ThroughputModel model({{}, {"eagle", {2, 1, 3}}}, make_costs(), 48);
  ASSERT_NE(play_rejected(model, 16), kOffArm) << "a trial begins, and is not over";
  for (int i = 0; i < 100; ++i) EXPECT_EQ(play_rejected(model, 17), kOffArm) << i;
}

TEST(ThroughputModelTest, AnInterruptedTrialTakesALimitedBudget) {
  ThroughputModel model({{}, {"eagle", {2, 1, 3}}}, make_costs(), 24);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(play_rejected(model, 9), kOffArm) << "does not fit";
  ASSERT_NE(play_rejected(model, 8, /*draft_seconds=*/1000), kOffArm);
  while (play_rejected(model, 8) != kOffArm) {
  }
  int steps = 1;
  while (steps < 5000 && play_rejected(model, 8) == kOffArm) ++steps;
  EXPECT_GT(steps, 500);
  EXPECT_LT(steps, 2000) << "24 steps of the current arm, at 1 % of the time";
}

TEST(ThroughputModelTest, NewWeightsMakeTreesCountMore) {
  const std::vector<drafter::DraftNode> nodes = chain(2);
  const std::vector<drafter::VerifiedTree> good(8, {nodes, 1}), bad(8, {nodes, -1});
  double tokens[2];
  for (const bool is_told : {false, true}) {
    ThroughputModel model = make_model();
    teach(model, 1, good, 500);
    const double before = model.expected_tokens(1, 8), seconds = model.expected_seconds(1, 8);
    if (is_told) model.new_weights();
    EXPECT_NEAR(model.expected_tokens(1, 8), before, 0.5);
    EXPECT_EQ(model.expected_seconds(1, 8), seconds);
    teach(model, 1, bad, 1);
    tokens[is_told] = model.expected_tokens(1, 8);
  }
  EXPECT_GT(tokens[false], 2.9);
  EXPECT_LT(tokens[true], 2.2);
}

TEST(ThroughputModelTest, RestoredModelIsTheSame) {
  ThroughputModel model = make_model(), resumed = make_model();
  RandomStream random(6, {});
  const auto depth = [&](size_t) { return static_cast<int32_t>(random.below(3)); };
  play(model, 300, depth);
  const nlohmann::json state = model.save();
  resumed.restore(nlohmann::json::parse(state.dump()));
  EXPECT_EQ(resumed.save(), state);
  const auto one = [](size_t) { return 1; };
  EXPECT_EQ(play(resumed, 300, one), play(model, 300, one));
}

TEST(ThroughputModelTest, OffIsNeeded) { EXPECT_THROW(make_model({{"eagle", {2, 1, 3}}}), Error); }

}  // namespace
}  // namespace tlt::speculation
