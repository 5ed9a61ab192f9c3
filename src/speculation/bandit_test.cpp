// SPDX-License-Identifier: Apache-2.0
#include "speculation/bandit.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/random.h"

namespace tlt::speculation {
namespace {

std::vector<Arm> make_arms(const EagleOptions& options) {
  std::vector<Arm> arms = {Arm{}};
  for (const drafter::Strategy& strategy : options.strategies())
    arms.push_back({"eagle", strategy});
  return arms;
}

EagleOptions make_options() {
  EagleOptions options;
  options.tune_algorithm = "BEG";
  return options;
}

// An outcome whose trees are chains.
struct ChainOutcome {
  std::vector<drafter::DraftNode> chain;
  std::vector<drafter::VerifiedTree> trees;
  StepOutcome outcome;

  ChainOutcome(const std::vector<int32_t>& accepted, double seconds) {
    for (int32_t i = 0; i < 8; ++i) chain.push_back({i, i - 1, i + 1, 0.5f});
    for (const int32_t depth : accepted) trees.push_back({chain, depth - 1});
    outcome = {.batch = std::ssize(accepted), .tokens = 0, .trees = trees, .seconds = seconds};
    for (const int32_t depth : accepted) outcome.tokens += depth + 1;
  }
};

// The pseudo-code of BEG-MAB in TLT word for word, with the same random numbers.
class SlowBeg {
 public:
  SlowBeg(std::vector<drafter::Strategy> strategies, std::vector<int64_t> t, double epsilon,
          size_t w, uint64_t seed)
      : t_(std::move(t)), epsilon_(epsilon), w_(w), seed_(seed) {
    std::map<int64_t, std::vector<drafter::Strategy>, std::greater<>> groups;
    for (const drafter::Strategy& s : strategies) groups[s.verify].push_back(s);
    for (const auto& [verify, group] : groups) groups_.push_back(group);
  }

  void record(const drafter::Strategy& s, double elapsed, const std::vector<int32_t>& accept_lens) {
    const auto bs = static_cast<double>(accept_lens.size());
    double sum = 0;
    for (const int32_t length : accept_lens) sum += length;
    const double a = sum / bs + 1;
    r_[s].push_back(a * bs / elapsed);
    if (r_[s].size() > w_) r_[s].pop_front();
  }

  drafter::Strategy select(int64_t bs, uint32_t choice) {
    size_t bucket = 0;
    for (size_t i = 0; i < t_.size(); ++i)
      if (t_[i] <= bs) bucket = i;  // B_i = [t_i, t_{i+1} - 1]
    const std::vector<drafter::Strategy>& v = groups_[bucket];
    if (v.size() == 1) return v[0];
    const auto random = [&](uint32_t number) {
      return uniform(seed_, {.prompt = 0x6d616221, .sample = number, .position = choice});
    };
    if (random(0) < epsilon_)
      return v[static_cast<size_t>(random(1) * static_cast<double>(v.size()))];
    for (const drafter::Strategy& s : v)
      if (r_[s].empty()) return s;
    drafter::Strategy best = v[0];
    for (const drafter::Strategy& s : v)
      if (median(r_[s]) > median(r_[best])) best = s;
    return best;
  }

 private:
  static double median(const std::deque<double>& numbers) {
    std::vector<double> sorted(numbers.begin(), numbers.end());
    std::ranges::sort(sorted);
    const size_t n = sorted.size();
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  }

  std::vector<int64_t> t_;
  double epsilon_;
  size_t w_;
  uint64_t seed_;
  std::vector<std::vector<drafter::Strategy>> groups_;
  std::map<drafter::Strategy, std::deque<double>> r_;
};

TEST(BanditTest, BegIsThePapersPseudoCode) {
  EagleOptions options = make_options();
  options.mab_configs = {"8_4_48", "6_4_48", "4_4_48", "8_4_32",
                         "4_2_8",  "3_2_8",  "2_4_8",  "1_8_8"};
  options.mab_bs_threshold = {1, 4, 12};
  options.check();
  for (uint64_t history = 0; history < 20; ++history) {
    options.mab_window = 1 + static_cast<int64_t>(history) * 3;
    options.mab_epsilon = history % 3 == 0 ? 0 : 0.2;
    const std::vector<Arm> arms = make_arms(options);
    BegBandit bandit(arms, {.options = options, .bs_threshold = 1000, .seed = history});
    SlowBeg slow(options.strategies(), options.mab_bs_threshold, options.mab_epsilon,
                 static_cast<size_t>(options.mab_window), history);
    RandomStream random(history, {.step = 1});
    std::set<size_t> chosen;
    for (uint32_t step = 0; step < 600; ++step) {
      const auto batch = static_cast<int64_t>(1 + random.below(20));
      const size_t arm = bandit.choose(batch, step);
      ASSERT_EQ(drafter::to_string(arms[arm].strategy),
                drafter::to_string(slow.select(batch, step)))
          << "history " << history << " step " << step << " batch " << batch;
      std::vector<int32_t> accepted;
      for (int64_t i = 0; i < batch; ++i) accepted.push_back(static_cast<int32_t>(random.below(9)));
      const ChainOutcome result(accepted, 0.5 + random.uniform());
      bandit.record(arm, result.outcome);
      slow.record(arms[arm].strategy, result.outcome.seconds, accepted);
      chosen.insert(arm);
    }
    EXPECT_EQ(chosen.size(), arms.size() - 1) << "history " << history;
  }
}

TEST(BanditTest, DefaultsAreFastRlsTableByBatchSize) {
  const EagleOptions options = make_options();
  const std::vector<Arm> arms = make_arms(options);
  BegBandit bandit(arms, {.options = options, .bs_threshold = 100000});
  const auto verify = [&](int64_t batch) { return arms[bandit.choose(batch, 0)].strategy.verify; };
  EXPECT_EQ(verify(1), 48);
  for (const int64_t batch : {2, 4}) EXPECT_EQ(verify(batch), 32) << batch;
  for (const int64_t batch : {5, 20}) EXPECT_EQ(verify(batch), 16) << batch;
  for (const int64_t batch : {21, 22, 100000}) EXPECT_EQ(verify(batch), 8) << batch;
  EXPECT_TRUE(arms[bandit.choose(100001, 0)].is_off());
}

TEST(BanditTest, FewerGroupsHaveTheFirstThresholds) {
  EagleOptions options = make_options();
  options.mab_configs = {"8_4_48", "8_4_16"};
  options.check();
  const std::vector<Arm> arms = make_arms(options);
  BegBandit bandit(arms, {.options = options, .bs_threshold = 1000});
  EXPECT_EQ(arms[bandit.choose(1, 0)].strategy.verify, 48);
  for (const int64_t batch : {2, 5, 21, 1000})
    EXPECT_EQ(arms[bandit.choose(batch, 0)].strategy.verify, 16) << batch;
}

TEST(BanditTest, BatchBelowTheFirstThresholdHasTheFirstGroup) {
  EagleOptions options = make_options();
  options.mab_bs_threshold = {4, 8, 16, 32};
  const std::vector<Arm> arms = make_arms(options);
  BegBandit bandit(arms, {.options = options, .bs_threshold = 1000});
  EXPECT_EQ(arms[bandit.choose(1, 0)].strategy.verify, 48);
}

// Plays 2,000 steps at this batch size; an arm's accepted depth and seconds are given. Returns the
// plays of each arm.
std::vector<int> play(BegBandit& bandit, int64_t batch, const std::vector<int32_t>& depths,
                      const std::vector<double>& seconds) {
  std::vector<int> plays(depths.size());
  for (uint64_t step = 0; step < 2000; ++step) {
    const size_t arm = bandit.choose(batch, step);
    ++plays[arm];
    const std::vector<int32_t> accepted(static_cast<size_t>(batch), depths[arm]);
    bandit.record(arm, ChainOutcome(accepted, seconds[arm]).outcome);
  }
  return plays;
}

TEST(BanditTest, BestArmIsPlayedMost) {
  EagleOptions options = make_options();
  options.mab_configs = {"8_4_48", "6_4_48", "4_4_48"};
  options.mab_bs_threshold = {1};
  options.check();
  BegBandit bandit(make_arms(options), {.options = options});
  // Tokens per second: 4 / 2, 5 / 2, 3 / 2 — the second strategy is the best; "off" is not played.
  const std::vector<int> plays = play(bandit, 2, {0, 3, 4, 2}, {1, 2, 2, 2});
  EXPECT_GT(plays[2], plays[1] + plays[3]);
  EXPECT_EQ(std::ranges::max_element(plays) - plays.begin(), 2);
  EXPECT_EQ(plays[0], 0);
  for (const size_t arm : {1, 3}) EXPECT_GE(plays[arm], 1) << arm;
}

TEST(BanditTest, StepsWithPromptRowsAreNotLearnedFrom) {
  EagleOptions options = make_options();
  options.mab_configs = {"8_4_48", "6_4_48"};
  options.mab_bs_threshold = {1};
  options.mab_epsilon = 0;
  BegBandit bandit(make_arms(options), {.options = options});
  EXPECT_EQ(bandit.choose(1, 0), 1u);
  ChainOutcome result({0}, 1);
  result.outcome.has_prompt_rows = true;
  bandit.record(1, result.outcome);
  EXPECT_EQ(bandit.choose(1, 0), 1u);  // still without a reward
  result.outcome.has_prompt_rows = false;
  bandit.record(1, result.outcome);
  EXPECT_EQ(bandit.choose(1, 0), 2u);
}

TEST(BanditTest, NewWeightsForgetTheOlderThreeQuarters) {
  EagleOptions options = make_options();
  options.mab_configs = {"8_4_48", "6_4_48"};
  options.mab_bs_threshold = {1};
  options.mab_epsilon = 0;
  options.mab_window = 8;
  BegBandit bandit(make_arms(options), {.options = options, .bs_threshold = 1000});
  for (int i = 0; i < 6; ++i) bandit.record(1, ChainOutcome({7}, 1).outcome);
  for (int i = 0; i < 2; ++i) bandit.record(1, ChainOutcome({0}, 1).outcome);
  for (int i = 0; i < 8; ++i) bandit.record(2, ChainOutcome({3}, 1).outcome);
  EXPECT_EQ(bandit.choose(1, 0), 1u);
  bandit.new_weights();
  EXPECT_EQ(bandit.choose(1, 0), 2u);
}

TEST(BanditTest, RestoredBanditChoosesTheSame) {
  EagleOptions options = make_options();
  options.mab_window = 20;
  const BegBandit::Setup setup = {.options = options, .seed = 5};
  BegBandit bandit(make_arms(options), setup);
  BegBandit resumed(make_arms(options), setup);
  RandomStream random(3, {});
  for (uint64_t step = 0; step < 400; ++step) {
    if (step == 200) resumed.restore(nlohmann::json::parse(bandit.save().dump()));
    const auto batch = static_cast<int64_t>(1 + random.below(3));
    const size_t arm = bandit.choose(batch, step);
    const ChainOutcome result(
        std::vector<int32_t>(static_cast<size_t>(batch), static_cast<int32_t>(random.below(6))),
        0.1 + random.uniform());
    bandit.record(arm, result.outcome);
    if (step < 200) continue;
    ASSERT_EQ(resumed.choose(batch, step), arm) << "step " << step;
    resumed.record(arm, result.outcome);
  }
}

}  // namespace
}  // namespace tlt::speculation
