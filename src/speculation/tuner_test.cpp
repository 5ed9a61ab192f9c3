// SPDX-License-Identifier: Apache-2.0
#include "speculation/tuner.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>

#include "base/check.h"
#include "base/random.h"
#include "tests/support/test_folder.h"

namespace tlt::speculation {
namespace {

// The cost of a step on a machine, in seconds.
struct Machine {
  std::string name;
  std::function<double(double rows)> target;
  double draft_level = 0;  // drafting one level of a tree
};

// A GPU's pass costs the same up to many rows, a CPU in bfloat16 computes the first rows cheaply
// (tlt bench forward), and in float32 speculation is never worthwhile.
std::vector<Machine> machines() {
  const Curve bfloat16({{1, 1}, {8, 1.28}, {16, 1.7}, {256, 16.3}, {2048, 128}});
  return {{"gpu", [](double rows) { return 0.02 + 1e-4 * std::max(0.0, rows - 96); }, 0.0008},
          {"cpu", [=](double rows) { return 0.01 * bfloat16.at(rows); }, 0.001},
          {"float32", [](double rows) { return 0.01 + 0.0034 * rows; }, 0.002}};
}

// Draft trees of one drafter, and the acceptance probability of their nodes: the estimate times
// `truth` for each level.
class Drafts {
 public:
  Drafts(double quality, double truth, const std::vector<Arm>& arms, uint64_t seed)
      : truth_(truth) {
    RandomStream random(seed, {.step = 77});
    for (size_t i = 0; i < kTrees; ++i) grow(quality + 0.3 * (random.uniform() - 0.5));
    for (const Arm& arm : arms) {
      cuts_.emplace_back();
      for (const std::vector<drafter::DraftNode>& tree : whole_)
        cuts_.back().push_back(cut(tree, arm));
    }
  }

  // The nodes of the tree that the arm's strategy keeps.
  const std::vector<drafter::DraftNode>& tree(size_t arm, size_t tree) const {
    return cuts_[arm][tree];
  }

  int32_t accepted(const std::vector<drafter::DraftNode>& nodes, RandomStream& random) const {
    int32_t at = drafter::DraftTree::kRoot;
    float reached = 1;
    for (double u = random.uniform(); true; u = random.uniform()) {
      int32_t next = drafter::DraftTree::kNone;
      for (size_t i = 0; i < nodes.size() && next == drafter::DraftTree::kNone; ++i) {
        if (nodes[i].parent != at) continue;
        u -= truth_ * static_cast<double>(nodes[i].probability / reached);
        if (u < 0) next = static_cast<int32_t>(i);
      }
      if (next == drafter::DraftTree::kNone) return at;
      at = next;
      reached = nodes[static_cast<size_t>(at)].probability;
    }
  }

  double expected_tokens(size_t arm) const {
    double sum = 0;
    for (const std::vector<drafter::DraftNode>& nodes : cuts_[arm])
      for (const drafter::DraftNode& node : nodes)
        sum += static_cast<double>(node.probability) * std::pow(truth_, node.depth);
    return 1 + sum / kTrees;
  }

  static constexpr size_t kTrees = 48;

 private:
  // Best first; the children of a node have p, (1 - p) / 2, (1 - p) / 4 …
  void grow(double quality) {
    const auto first = static_cast<float>(std::clamp(quality, 0.02, 0.98));
    std::vector<drafter::DraftNode> nodes;
    std::priority_queue<std::tuple<float, int32_t, int32_t>> open;  // probability, order, parent
    int32_t order = 0;
    const auto expand = [&](int32_t parent, float reached) {
      float share = first;
      for (int i = 0; i < 4; ++i) {
        open.emplace(reached * share, --order, parent);
        share = i == 0 ? (1 - first) / 2 : share / 2;
      }
    };
    expand(drafter::DraftTree::kRoot, 1);
    while (nodes.size() < 160 && !open.empty()) {
      const auto [probability, number, parent] = open.top();
      open.pop();
      const int32_t depth = parent < 0 ? 1 : nodes[static_cast<size_t>(parent)].depth + 1;
      nodes.push_back({number, parent, depth, probability});
      if (depth < 10) expand(static_cast<int32_t>(nodes.size()) - 1, probability);
    }
    whole_.push_back(nodes);
  }

  static std::vector<drafter::DraftNode> cut(const std::vector<drafter::DraftNode>& tree,
                                             const Arm& arm) {
    std::vector<drafter::DraftNode> kept;
    std::map<int32_t, int32_t> place = {{drafter::DraftTree::kRoot, drafter::DraftTree::kRoot}};
    std::map<int32_t, int64_t> children;
    for (size_t i = 0; i < tree.size(); ++i) {
      if (std::ssize(kept) == arm.strategy.verify - 1) break;
      if (tree[i].depth > arm.strategy.depth || !place.contains(tree[i].parent)) continue;
      if (++children[tree[i].parent] > arm.strategy.width) continue;
      place[static_cast<int32_t>(i)] = static_cast<int32_t>(kept.size());
      kept.push_back(tree[i]);
      kept.back().parent = place[tree[i].parent];
    }
    return kept;
  }

  const double truth_;
  std::vector<std::vector<drafter::DraftNode>> whole_;
  std::vector<std::vector<std::vector<drafter::DraftNode>>> cuts_;  // [arm][tree]
};

struct Quality {
  double quality = 0.7;
  double truth = 1;
};

// A simulated engine on that machine with these drafters: plays the arms that a tuner chooses.
class World {
 public:
  World(Machine machine, std::map<std::string, Quality> qualities, uint64_t seed = 1)
      : machine_(std::move(machine)), random_(seed, {.step = 5}) {
    const std::vector<drafter::Strategy> strategies = EagleOptions().strategies();
    for (const auto& [kind, quality] : qualities) {
      kinds_.push_back(kind);
      for (const drafter::Strategy& strategy : strategies) arms_.push_back({kind, strategy});
    }
    set_qualities(qualities);
  }

  void set_qualities(const std::map<std::string, Quality>& qualities) {
    drafts_.clear();
    uint64_t seed = 0;
    for (const auto& [kind, quality] : qualities)
      drafts_.emplace(kind, Drafts(quality.quality, quality.truth, arms_, ++seed));
    best_.clear();
    tokens_.clear();
    for (size_t arm = 0; arm < arms_.size(); ++arm)
      tokens_.push_back(drafts_.at(arms_[arm].kind).expected_tokens(arm));
  }

  // The table is inaccurate: no overhead, and another error for each kind and depth.
  CostTable measure() const {
    std::vector<ForwardCost> forwards;
    for (const int64_t context : {128, 1024})
      for (const int64_t batch : {1, 4, 16, 64, 128})
        for (int64_t rows = batch; rows <= 2048; rows *= 2)
          forwards.push_back({batch, rows,
                              machine_.target(static_cast<double>(rows)) +
                                  seconds_of_context(batch, static_cast<double>(context)),
                              context});
    std::vector<DraftCost> drafts;
    for (const Arm& arm : arms_)
      for (const int64_t batch : {1, 8, 64})
        drafts.push_back({arm.kind, arm.strategy, batch, 0.8 * draft_seconds(arm)});
    return CostTable(forwards, drafts);
  }

  Tuner make_tuner(SpeculationOptions options = {}, uint64_t seed = 0) const {
    return Tuner(options, {.kinds = kinds_, .costs = measure(), .max_rows = 2048, .seed = seed});
  }

  double seconds(const Arm& arm, int64_t batch) const { return seconds(arm, batch, batch); }
  double seconds(const Arm& arm, int64_t batch, int64_t drafted) const {
    const auto rows = static_cast<double>(batch + drafted * (arm.strategy.verify - 1));
    return overhead_ * (machine_.target(rows) + seconds_of_context(batch, context_)) +
           draft_seconds(arm);
  }
  double now_seconds(const Arm& arm, int64_t batch, int64_t drafted) const {
    return seconds(arm, batch, drafted) * (arm.is_off() ? 1 + coldness_ * cold_ : 1);
  }
  double tokens(const Arm& arm) const { return arm.is_off() ? 1 : tokens_[place(arm)]; }
  double best_rate(int64_t batch) {
    double& best = best_[{batch, context_}];
    if (best == 0) {
      best = 1 / seconds(Arm{}, batch);
      for (const Arm& arm : arms_)
        if (arm.strategy.verify * batch <= 2048)
          best = std::max(best, tokens(arm) / seconds(arm, batch));
    }
    return best;
  }

  // One engine step with the arm for some of the sequences; the outcome is valid until the next.
  const StepOutcome& play(const Arm& arm, int64_t batch, int64_t drafted) {
    trees_.clear();
    outcome_ = {};
    outcome_.batch = outcome_.tokens = batch;
    if (tells_context_) outcome_.context = context_;
    if (!arm.is_off()) {
      const size_t at = place(arm);
      const Drafts& drafts = drafts_.at(arm.kind);
      for (int64_t i = 0; i < drafted; ++i) {
        const std::vector<drafter::DraftNode>& nodes =
            drafts.tree(at, random_.below(Drafts::kTrees));
        trees_.push_back({nodes, drafts.accepted(nodes, random_)});
        outcome_.tokens += trees_.back().accepted_depth();
      }
    }
    outcome_.trees = trees_;
    outcome_.draft_seconds = draft_seconds(arm) + read(arm, drafted);
    cold_ += arm.is_off() ? -0.25 * cold_ : 0.3 * (1 - cold_);
    outcome_.seconds = now_seconds(arm, batch, drafted) * std::exp(noise_ * random_.normal());
    outcome_.seconds += outcome_.draft_seconds - draft_seconds(arm);
    if (random_.uniform() < (is_slow_ ? 1.0 / 50 : slowdown_rate_)) is_slow_ = !is_slow_;
    if (is_slow_) outcome_.seconds *= 2.2;
    if (random_.uniform() < outliers_) outcome_.seconds *= 10;
    return outcome_;
  }

  // Runs steps at this batch size. Returns the share of their time that the best arm would have
  // needed for the same tokens.
  double run(Tuner& tuner, int64_t batch, int steps) {
    Efficiency sum;
    for (int i = 0; i < steps; ++i) step(tuner, batch, sum);
    return sum.share();
  }

  struct Efficiency {
    double needed = 0, spent = 0;
    double share() const { return needed / spent; }
  };
  void step(Tuner& tuner, int64_t batch, Efficiency& sum) {
    const Arm& arm = tuner.choose({batch, tells_context_ ? context_ : 0});
    const int64_t drafted = tuner.is_exploration() ? std::min(batch, kExplorationSequences) : batch;
    tuner.record(arm, play(arm, batch, drafted));
    count(arm, batch, drafted, sum);
    switches_ += !(arm == last_);
    last_ = arm;
  }
  // The step that was played last. Expected values, so that luck does not count.
  void count(const Arm& arm, int64_t batch, int64_t drafted, Efficiency& sum) {
    sum.spent += now_seconds(arm, batch, drafted) + outcome_.draft_seconds - draft_seconds(arm);
    const double share = static_cast<double>(drafted) / static_cast<double>(batch);
    sum.needed += (1 + share * (tokens(arm) - 1)) / best_rate(batch);
  }

  const std::vector<Arm>& arms() const { return arms_; }
  int switches() const { return switches_; }

  double noise_ = 0.1;
  double outliers_ = 0.01;
  double slowdown_rate_ = 0;  // probability that a slowdown of 50 steps begins
  double overhead_ = 1.15;
  double coldness_ = 0;         // relative slowdown of an `off` step after many speculative ones
  double reading_ = 0;          // seconds that eagle needs to catch up with a step of a sequence
  double context_seconds_ = 0;  // seconds per token of context, however many rows read it
  double context_ = 0;          // context length
  bool tells_context_ = true;

 private:
  // Seconds of an EAGLE drafter to catch up; exploration drafts for the same sequences first.
  double read(const Arm& arm, int64_t drafted) {
    double seconds = 0;
    for (int64_t i = 0; i < std::ssize(unread_); ++i) {
      if (arm.kind == "eagle" && i < drafted)
        seconds += reading_ * std::exchange(unread_[static_cast<size_t>(i)], 0);
      else
        unread_[static_cast<size_t>(i)] = std::min(unread_[static_cast<size_t>(i)] + 1.0, 128.0);
    }
    return seconds;
  }
  double seconds_of_context(int64_t batch, double context) const {
    return context_seconds_ * static_cast<double>(batch) * context;
  }
  double draft_seconds(const Arm& arm) const {
    if (arm.is_off()) return 0;
    return (arm.kind == "suffix" ? 0.2 : 1.0) * machine_.draft_level *
           static_cast<double>(arm.strategy.depth);
  }
  size_t place(const Arm& arm) const {
    return static_cast<size_t>(std::ranges::find(arms_, arm) - arms_.begin());
  }

  Machine machine_;
  RandomStream random_;
  std::vector<std::string> kinds_;
  std::vector<Arm> arms_;  // without `off`
  std::map<std::string, Drafts> drafts_;
  std::vector<double> tokens_;  // [arm]
  std::map<std::pair<int64_t, double>, double> best_;
  std::vector<drafter::VerifiedTree> trees_;
  std::vector<double> unread_ = std::vector<double>(64);  // [sequence] steps
  StepOutcome outcome_;
  bool is_slow_ = false;
  double cold_ = 0;
  Arm last_;
  int switches_ = 0;
};

const std::map<std::string, std::map<std::string, Quality>> kDrafters = {
    {"good", {{"eagle", {0.75, 1}}, {"suffix", {0.4, 1}}}},
    {"fair", {{"eagle", {0.55, 0.9}}, {"suffix", {0.3, 0.9}}}},
    {"boasting", {{"eagle", {0.8, 0.6}}, {"suffix", {0.8, 0.3}}}},
    {"useless", {{"eagle", {0.5, 0}}, {"suffix", {0.5, 0}}}}};

class StationaryTest : public testing::TestWithParam<std::tuple<int, std::string>> {};

// With noise of 10 % and outliers an arm that is a few percent slower can be the current arm for a
// while at one batch size; not at all of them, and not in every run.
TEST_P(StationaryTest, ConvergesToTheBestArmAtEveryBatchSize) {
  const Machine machine = machines()[static_cast<size_t>(std::get<0>(GetParam()))];
  const bool is_useless = std::get<1>(GetParam()) == "useless";
  const std::vector<int64_t> batches = {1, 2, 4, 8, 16, 64};
  constexpr uint64_t kSeeds = 4;
  double sum_late = 0, sum_total = 0;
  for (const int64_t batch : batches) {
    const int steps = batch > 8 ? 400 : 1000;
    double early = 0, late = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      World world(machine, kDrafters.at(std::get<1>(GetParam())), seed);
      Tuner tuner = world.make_tuner();
      early += world.run(tuner, batch, steps) / kSeeds;
      late += world.run(tuner, batch, steps) / kSeeds;
    }
    sum_late += late;
    sum_total += (early + late) / 2;
    EXPECT_GT(late, is_useless ? 0.98 : 0.93) << "batch " << batch;
    EXPECT_GT((early + late) / 2, is_useless ? 0.98 : 0.93) << "batch " << batch;
  }
  const auto count = static_cast<double>(batches.size());
  RecordProperty("late", std::to_string(sum_late / count));
  RecordProperty("total", std::to_string(sum_total / count));
  EXPECT_GT(sum_late / count, is_useless ? 0.99 : 0.975);
  EXPECT_GT(sum_total / count, is_useless ? 0.99 : 0.97);
}

INSTANTIATE_TEST_SUITE_P(Worlds, StationaryTest,
                         testing::Combine(testing::Values(0, 1, 2),
                                          testing::Values("good", "fair", "boasting", "useless")),
                         [](const auto& info) {
                           return machines()[static_cast<size_t>(std::get<0>(info.param))].name +
                                  "_" + std::get<1>(info.param);
                         });

// The sequences of a rollout end one after the other; a few are very long.
int64_t long_tail_batch(int step, int steps) {
  const double progress = static_cast<double>(step) / steps;
  return std::max<int64_t>(1, std::llround(128 * std::exp(-9 * progress)));
}

class LongTailTest : public testing::TestWithParam<size_t> {};

TEST_P(LongTailTest, IsNearTheOracle) {
  double sum = 0;
  for (const char* drafters : {"good", "boasting", "useless"}) {
    World world(machines()[GetParam()], kDrafters.at(drafters));
    Tuner tuner = world.make_tuner();
    World::Efficiency rollout;
    for (int step = 0; step < 2000; ++step) world.step(tuner, long_tail_batch(step, 2000), rollout);
    RecordProperty(drafters, std::to_string(rollout.share()));
    EXPECT_GT(rollout.share(), 0.95) << drafters;
    sum += rollout.share();
  }
  RecordProperty("mean", std::to_string(sum / 3));
  EXPECT_GT(sum / 3, 0.97);
}

INSTANTIATE_TEST_SUITE_P(Machines, LongTailTest, testing::Range<size_t>(0, 3),
                         [](const auto& info) { return machines()[info.param].name; });

TEST(TunerTest, LearnsAcrossRollouts) {
  World::Efficiency rollouts[2];
  for (uint64_t seed = 1; seed <= 64; ++seed) {
    World world(machines()[1], kDrafters.at("good"), seed);
    Tuner tuner = world.make_tuner();
    for (World::Efficiency& sum : rollouts) {
      for (int step = 0; step < 1000; ++step) world.step(tuner, long_tail_batch(step, 1000), sum);
      tuner.new_weights();
    }
  }
  RecordProperty("first", std::to_string(rollouts[0].share()));
  RecordProperty("second", std::to_string(rollouts[1].share()));
  EXPECT_GT(rollouts[1].share(), 0.975);
  // Where learning costs little, there is little to gain.
  EXPECT_GT(rollouts[1].share(), rollouts[0].share() - 0.005);
}

// Another program occasionally takes half of the machine.
TEST(TunerTest, TransientSlowdownsDoNotBiasArms) {
  constexpr uint64_t kSeeds = 4;
  double sum = 0;
  int count = 0;
  for (const char* drafters : {"good", "fair", "useless"})
    for (const int64_t batch : {1, 4, 16, 64}) {
      double share = 0;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        World world(machines()[1], kDrafters.at(drafters), seed);
        world.slowdown_rate_ = 1.0 / 200;
        Tuner tuner = world.make_tuner();
        world.run(tuner, batch, 500);
        share += world.run(tuner, batch, 2000) / kSeeds;
      }
      EXPECT_GT(share, 0.96) << drafters << " at batch " << batch;
      sum += share;
      ++count;
    }
  RecordProperty("mean", std::to_string(sum / count));
  EXPECT_GT(sum / count, 0.98);
}

// The drafter is useless, and slow after idle steps: it has to read what it missed.
TEST(TunerTest, ExplorationLimitsCatchingUp) {
  for (const int64_t batch : {8, 16, 64}) {
    World world(machines()[1], kDrafters.at("useless"));
    world.reading_ = world.seconds(Arm{}, batch) / 16;
    Tuner tuner = world.make_tuner();
    const double share = world.run(tuner, batch, 2000);
    RecordProperty("batch " + std::to_string(batch), std::to_string(share));
    EXPECT_GT(share, 0.96) << "batch " << batch;
  }
}

// Like the demo's model on two cores: a row costs almost as much as the one before, so that
// speculation is faster for few sequences only, and an EAGLE drafter that was idle for long needs
// the time of decoding ten tokens to catch up.
TEST(TunerTest, ExplorationIsCheapOnASmallModel) {
  const Curve rows({{1, 1}, {2, 1.05}, {4, 1.6}, {8, 2.7}, {16, 5}, {32, 9.8}, {2048, 600}});
  const Machine machine{"small", [=](double n) { return 1e-4 * rows.at(n); }, 1e-5};
  for (const char* drafters : {"good", "fair", "useless"}) {
    double sum = 0, count = 0;
    for (const int64_t batch : {1, 2, 4, 8, 16, 32}) {
      double share = 0;
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        World world(machine, kDrafters.at(drafters), seed);
        world.reading_ = 1e-5;
        Tuner tuner = world.make_tuner();
        share += world.run(tuner, batch, 3000) / 4;
      }
      EXPECT_GT(share, 0.945) << drafters << " at batch " << batch;
      sum += share;
      ++count;
    }
    RecordProperty(drafters, std::to_string(sum / count));
    EXPECT_GT(sum / count, 0.97) << drafters;
  }
}

// Context lengths grow from 64 to 1,024 tokens: speculation is faster only where reading the
// context costs as much as computing a few rows. Observations at short contexts must not count for
// long ones, and vice versa.
TEST(TunerTest, ArmsDependOnTheContextLength) {
  const Curve rows({{1, 1}, {4, 3.8}, {2048, 1940}});
  const Machine machine{"dear rows", [=](double n) { return 3.5e-5 * rows.at(n); }, 1e-5};
  const auto share = [&](bool tells_context, int64_t batch) {
    double sum = 0;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      World world(machine, {{"eagle", {0.6, 1}}}, seed);
      world.context_seconds_ = 1.6e-7;
      world.tells_context_ = tells_context;
      Tuner tuner = world.make_tuner();
      World::Efficiency rollouts;
      for (int step = 0; step < 4 * 960; ++step) {
        world.context_ = 64 + step % 960;
        world.step(tuner, batch, rollouts);
      }
      sum += rollouts.share() / 4;
    }
    return sum;
  };
  for (const int64_t batch : {2, 8, 32}) {
    const double with = share(true, batch), without = share(false, batch);
    RecordProperty("batch " + std::to_string(batch),
                   std::to_string(with) + ", without context " + std::to_string(without));
    EXPECT_GT(with, 0.97) << "batch " << batch;
    EXPECT_LT(without, with - 0.01) << "batch " << batch;
  }
}

// The drafter is useless, becomes good by training, and useless again.
TEST(TunerTest, NewWeightsAreExploredAgain) {
  World world(machines()[1], kDrafters.at("useless"));
  Tuner tuner = world.make_tuner();
  world.run(tuner, 4, 1000);
  EXPECT_LT(tuner.report().speculation_share, 0.1);
  world.set_qualities(kDrafters.at("good"));
  tuner.new_weights();
  const double good = world.run(tuner, 4, 300);
  world.set_qualities(kDrafters.at("useless"));
  tuner.new_weights();
  const double useless = world.run(tuner, 4, 300);
  RecordProperty("good", std::to_string(good));
  RecordProperty("useless", std::to_string(useless));
  EXPECT_GT(good, 0.9);
  EXPECT_GT(useless, 0.9);
}

TEST(TunerTest, DetectsUnannouncedDrift) {
  constexpr int kSeeds = 32;
  int found = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(machines()[0], kDrafters.at("good"), seed);
    Tuner tuner = world.make_tuner();
    world.run(tuner, 2, 600);
    world.set_qualities(kDrafters.at("useless"));
    world.run(tuner, 2, 600);
    EXPECT_GT(world.run(tuner, 2, 200), 0.95) << seed;
    world.set_qualities(kDrafters.at("good"));
    world.run(tuner, 2, 6000);
    found += world.run(tuner, 2, 500) > 0.95 ? 1 : 0;
  }
  RecordProperty("found", std::to_string(found));
  EXPECT_GE(found, kSeeds - 4);  // exploration may be unlucky
}

// A non-speculative step is slower after speculative ones; the cost table was measured warm.
TEST(TunerTest, FindsOffDespiteColdFirstSteps) {
  constexpr uint64_t kSeeds = 8;
  double sum = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(machines()[1], {{"eagle", {0.5, 1}}}, seed);
    world.coldness_ = 0.5;
    Tuner tuner = world.make_tuner();
    world.run(tuner, 16, 1000);
    sum += world.run(tuner, 16, 1500) / kSeeds;
  }
  RecordProperty("mean", std::to_string(sum));
  EXPECT_GT(sum, 0.97);
}

TEST(TunerTest, EqualArmsDoNotAlternate) {
  World world(machines()[0], {{"eagle", {0.6, 1}}, {"twin", {0.6, 1}}});
  Tuner tuner = world.make_tuner();
  world.run(tuner, 8, 500);
  const int before = world.switches();
  world.run(tuner, 8, 1000);
  EXPECT_LT(world.switches() - before, 100);  // exploration switches twice in 15 + 15 steps
}

TEST(TunerTest, ChoicesAreDeterministicAndResumable) {
  for (const char* algorithm : {"ADAPTIVE", "BEG"}) {
    SpeculationOptions options;
    options.eagle.tune_algorithm = algorithm;
    World world(machines()[1], kDrafters.at("fair"));
    Tuner tuner = world.make_tuner(options, /*seed=*/7);
    Tuner twin = world.make_tuner(options, /*seed=*/7);
    Tuner resumed = world.make_tuner(options, /*seed=*/7);
    for (int step = 0; step < 300; ++step) {
      if (step == 150) {
        ASSERT_TRUE(resumed.try_restore(tuner.save(), "here"));
      }
      if (step % 100 == 99) {
        tuner.new_weights(), twin.new_weights();
        if (step > 150) resumed.new_weights();
      }
      const int64_t batch = long_tail_batch(step, 300) / 4 + 1;
      const Arm& arm = tuner.choose(batch);
      ASSERT_EQ(twin.choose(batch), arm) << algorithm << " step " << step;
      if (step >= 150) {
        ASSERT_EQ(resumed.choose(batch), arm) << algorithm << " step " << step;
      }
      const StepOutcome& outcome = world.play(arm, batch, batch);
      tuner.record(arm, outcome);
      twin.record(arm, outcome);
      if (step >= 150) resumed.record(arm, outcome);
    }
    EXPECT_EQ(resumed.save(), tuner.save()) << algorithm;
  }
}

TEST(TunerTest, StateOfOtherOptionsIsIgnored) {
  World world(machines()[0], kDrafters.at("good"));
  Tuner tuner = world.make_tuner();
  world.run(tuner, 4, 50);
  const std::string saved = tuner.save();
  SpeculationOptions options;
  options.eagle.mab_configs = {"8_4_48", "8_4_16"};
  Tuner other = world.make_tuner(options);
  const std::string before = other.save();
  EXPECT_FALSE(other.try_restore(saved, "tuner.json"));
  EXPECT_EQ(other.save(), before);
  for (const std::string& text : {std::string("{"), std::string("{}"), saved.substr(0, 900)}) {
    Tuner fresh = world.make_tuner();
    const std::string message =
        thrown_message<InputError>([&] { (void)fresh.try_restore(text, "tuner.json"); });
    EXPECT_TRUE(message.starts_with("tuner.json: not the state of a tuner (")) << message;
    EXPECT_EQ(message.find("json.exception"), message.npos) << message;
  }
}

TEST(TunerTest, OnlyTheBatchSizeEndsSpeculationOfBeg) {
  SpeculationOptions options;
  options.eagle.tune_algorithm = "BEG";
  World world(machines()[1], kDrafters.at("useless"));
  Tuner tuner = world.make_tuner(options);
  for (int step = 0; step < 200; ++step) {
    EXPECT_TRUE(tuner.choose(33).is_off());
    const Arm& arm = tuner.choose(2);
    EXPECT_FALSE(arm.is_off());  // even with a useless drafter
    tuner.record(arm, world.play(arm, 2, 2));
  }
}

TEST(TunerTest, ForwardPassesStayWithinMaxRows) {
  World world(machines()[0], kDrafters.at("good"));
  Tuner tuner(SpeculationOptions(),
              {.kinds = {"eagle"}, .costs = world.measure(), .max_rows = 128});
  for (const int64_t batch : {1, 2, 3, 10, 50, 64, 65, 128, 500})
    for (int step = 0; step < 100; ++step) {
      const Arm& arm = tuner.choose(batch);
      ASSERT_LE(arm.is_off() ? 0 : arm.strategy.verify * batch, 128) << "batch " << batch;
      tuner.record(arm, world.play(arm, batch, batch));
    }
}

TEST(TunerTest, RegretComparesEqualContextLengths) {
  World world(machines()[0], kDrafters.at("good"));
  Tuner tuner = world.make_tuner();
  const auto play_off = [&](double context, double seconds) {
    for (int i = 0; i < 20; ++i)
      tuner.record(Arm{},
                   {.batch = 2, .context = context, .tokens = 2, .trees = {}, .seconds = seconds});
  };
  const auto play_eagle = [&](double context, double seconds) {
    for (int i = 0; i < 20; ++i)
      tuner.record({"eagle", {8, 4, 8}},
                   {.batch = 2, .context = context, .tokens = 6, .trees = {}, .seconds = seconds});
  };
  play_off(100, 1);
  play_eagle(1000, 12);  // slower than `off` with a tenth of the context
  EXPECT_EQ(tuner.report().regret, 0);
  play_off(1000, 2);  // twice as fast as speculation
  EXPECT_NEAR(tuner.report().regret, (20 * 12 / 2.) / (20 + 20 * 12 + 20 * 2), 1e-9);
}

TEST(TunerTest, ReportCountsPlays) {
  SpeculationOptions options;
  options.eagle.tune_algorithm = "BEG";
  World world(machines()[0], kDrafters.at("good"));
  Tuner tuner = world.make_tuner(options);
  EXPECT_EQ(tuner.report().steps, 0);
  EXPECT_EQ(tuner.report().regret, 0);
  const Arm eagle{"eagle", {8, 4, 8}};
  std::vector<drafter::DraftNode> chain = {{1, -1, 1, 0.9f}, {2, 0, 2, 0.8f}};
  const std::vector<drafter::VerifiedTree> trees = {{chain, 1}, {chain, -1}};
  for (int i = 0; i < 30; ++i)
    tuner.record(eagle, {.batch = 2, .tokens = 4, .trees = trees, .seconds = 1});
  for (int i = 0; i < 10; ++i)
    tuner.record(Arm{}, {.batch = 2, .tokens = 2, .trees = {}, .seconds = 1});
  const TunerReport report = tuner.report();
  EXPECT_EQ(report.steps, 40);
  EXPECT_DOUBLE_EQ(report.speculation_share, 0.75);
  for (const ArmReport& line : report.arms)
    if (line.arm == eagle) {
      EXPECT_EQ(line.plays, 30);
      EXPECT_DOUBLE_EQ(line.acceptance_length, 2);
      EXPECT_DOUBLE_EQ(line.tokens_per_second, 4);
    } else if (!line.arm.is_off()) {
      EXPECT_EQ(line.plays, 0);
    }
  // 140 tokens in 40 seconds; with the best arm they take 35.
  EXPECT_DOUBLE_EQ(report.regret, 1 - 35.0 / 40);
  EXPECT_EQ(to_json(report).at("arms").size(), tuner.arms().size());
}

TEST(TunerTest, EstimatedRegretIsNearTheTrueOne) {
  World world(machines()[1], kDrafters.at("good"));
  world.outliers_ = 0;
  Tuner tuner = world.make_tuner();
  World::Efficiency sum;
  for (size_t step = 0; step < 1500; ++step) {
    const Arm& arm = tuner.arms()[step % tuner.arms().size()];
    const StepOutcome& outcome = world.play(arm, 4, 4);
    tuner.record(arm, outcome);
    world.count(arm, 4, 4, sum);
  }
  EXPECT_LT(sum.share(), 0.8);
  EXPECT_NEAR(tuner.report().regret, 1 - sum.share(), 0.05);
}

// A rollout whose batch shrinks, so that distant batch sizes have been observed; then the true
// slowdown when as many sequences join as the tuner says. Between observed batch sizes the
// prediction may be off by some percent.
TEST(TunerTest, SpareCapacityLimitsTheSlowdown) {
  for (const Machine& machine : machines())
    for (const std::string quality : {"good", "useless"}) {
      SCOPED_TRACE(machine.name + " " + quality);
      World world(machine, kDrafters.at(quality));
      Tuner tuner = world.make_tuner();
      EXPECT_EQ(tuner.spare_capacity(1), machine.name == "gpu" ? 1 : 0) << "by the table alone";
      for (const int64_t batch : {64, 32, 16, 8, 4, 2, 1}) world.run(tuner, batch, 300);
      for (const int64_t batch : {1, 2, 3, 4, 8, 16, 32, 64}) {
        SCOPED_TRACE(batch);
        const int64_t room = tuner.spare_capacity(batch);
        EXPECT_LE(room, batch);
        EXPECT_GE(world.best_rate(batch + room), 0.88 * world.best_rate(batch));
        if (room < batch) {
          EXPECT_LE(world.best_rate(2 * batch), 0.995 * world.best_rate(batch));
        }
        EXPECT_TRUE(machine.name != "float32" || room == 0);
      }
      // With good drafts the trees use the free rows, so that further sequences slow the others.
      if (machine.name == "gpu" && quality == "useless") {
        EXPECT_EQ(tuner.spare_capacity(2), 2);
        EXPECT_EQ(tuner.spare_capacity(32), 32);
      }
    }
}

TEST(TunerTest, BanditsHaveNoSpareCapacity) {
  SpeculationOptions options;
  options.eagle.tune_algorithm = "BEG";
  World world(machines()[0], kDrafters.at("good"));
  Tuner tuner = world.make_tuner(options);
  world.run(tuner, 1, 100);
  EXPECT_EQ(tuner.spare_capacity(1), 0);
}

TEST(TunerTest, ArmOfAnotherTunerThrows) {
  World world(machines()[0], kDrafters.at("good"));
  Tuner tuner = world.make_tuner();
  EXPECT_THROW(
      tuner.record({"ngram", {8, 4, 8}}, {.batch = 1, .tokens = 1, .trees = {}, .seconds = 1}),
      Error);
  EXPECT_THROW(tuner.choose(0), Error);
}

}  // namespace
}  // namespace tlt::speculation
