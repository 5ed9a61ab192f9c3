// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "base/random.h"
#include "tests/support/small_simulation.h"
#include "tests/support/test_folder.h"

namespace tlt::simulate {
namespace {

using ::testing::HasSubstr;
using tests::run_simulation;
using tests::small_simulation;

double rollout_seconds(const SimulateOptions& options, const std::string& way) {
  double seconds = 0;
  for (const StepReport& step : run_simulation(options, way)) seconds += step.rollout;
  return seconds;
}

double step_seconds(const SimulateOptions& options, const std::string& way) {
  double seconds = 0;
  for (const StepReport& step : run_simulation(options, way)) seconds += step.seconds;
  return seconds;
}

TEST(SimulationTest, EveryTokenOnceAndEverySecondAccountedFor) {
  for (const bool is_tight : {false, true}) {
    SimulateOptions options = small_simulation();
    options.straggler_spread = 0.2;
    options.reward_seconds = 0.5;
    // 15.2 GB of weights and 0.8 GB of KV cache: 13,000 tokens.
    if (is_tight) options.gpu_memory_utilization = 0.2;
    const Workload workload(options);
    for (const Way& way : ways()) {
      int64_t step = 0, preemptions = 0;
      for (const StepReport& report : run_simulation(options, way.name)) {
        double tokens = 0;
        for (int64_t group = 0; group < options.train_batch_size; ++group)
          for (int64_t i = 0; i < options.n; ++i)
            tokens += static_cast<double>(workload.length(step, group, i));
        ++step;
        const std::string place = way.name + ", step " + std::to_string(step);
        EXPECT_EQ(report.responses, 128) << place;
        EXPECT_EQ(report.tokens, tokens) << place;
        EXPECT_NEAR(report.engines.tokens / tokens, 1, 1e-6) << place;
        EXPECT_NEAR((report.decoding + report.idle) / (4 * report.rollout), 1, 1e-6) << place;
        EXPECT_NEAR(report.engines.seconds / report.decoding, 1, 1e-9) << place;
        EXPECT_LE(report.draft_training + report.gradients, report.idle * (1 + 1e-9)) << place;
        EXPECT_NEAR(report.rollout + report.reward + report.exchange + report.logprobs +
                        report.update + report.draft_gap + report.sync,
                    report.seconds, 1e-6 * report.seconds)
            << place;
        preemptions += report.engines.preemptions;
      }
      EXPECT_EQ(preemptions > 0, is_tight) << way.name;
    }
  }
}

TEST(SimulationTest, TimelineCoversEachWorkerOnce) {
  const SimulateOptions options = small_simulation();
  std::map<int64_t, double> end;
  Simulation simulation(options, find_way("tlt-early"),
                        [&](int64_t worker, const char* lane, double from, double to) {
                          EXPECT_NEAR(from, end[worker], 1e-6) << lane << " of worker " << worker;
                          EXPECT_GT(to, from);
                          end[worker] = to;
                        });
  double seconds = 0;
  while (!simulation.is_done()) seconds += simulation.run_step().seconds;
  for (const auto& [worker, last] : end) EXPECT_NEAR(last, seconds, 1e-6) << worker;
  EXPECT_EQ(std::ssize(end), options.workers);
}

// One sequence, no prompt to speak of: the sum of its passes.
TEST(SimulationTest, OneSequenceTakesItsForwardPasses) {
  SimulateOptions options = small_simulation();
  options.workers = options.train_batch_size = options.n = options.prompt_length = 1;
  options.total_training_steps = 1;
  options.max_response_length = 100;
  options.lengths = "pareto:1000,1000";
  const StepReport report = run_simulation(options, "plain").at(0);
  const CostModel costs({.device = find_device("H100"), .model = find_model("Qwen2.5-7B")});
  // The prompt takes a pass of its own; then 100 passes after 1 … 100 tokens.
  double seconds = costs.prefill(1) + costs.forward(1, 1, 0);
  for (int i = 1; i <= 100; ++i) seconds += costs.forward(1, 1, i);
  EXPECT_NEAR(report.rollout, seconds, 1e-9 * seconds);
  EXPECT_EQ(report.engines.steps, 101);
  EXPECT_EQ(report.truncated, 1);
}

// Tokens of chains of one draft token at acceptance a: 1 + a for each pass.
TEST(SimulationTest, StaticSpeedupOfOneSequenceIsTheClosedForm) {
  SimulateOptions options = small_simulation();
  options.workers = options.train_batch_size = options.n = 1;
  options.total_training_steps = 1;
  options.lengths = "pareto:8000,8000";
  const StepReport plain = run_simulation(options, "plain").at(0),
                   fast = run_simulation(options, "static").at(0);
  const CostModel costs({.device = find_device("H100"), .model = find_model("Qwen2.5-7B")});
  DraftTrees trees;
  const drafter::Strategy strategy{8, 4, 48};
  const double tokens = trees.find(strategy, options.draft_acceptance).tokens.back();
  const double context = 4000 + 512;
  const double expected = tokens * costs.forward(1, 1, context) /
                          (costs.forward(48, 1, context) + costs.drafting(strategy, 1, true));
  EXPECT_NEAR(plain.rollout / fast.rollout, expected, 0.01 * expected);
  EXPECT_NEAR(fast.acceptance_length(), tokens, 1e-9);
}

TEST(SimulationTest, SuffixDraftsHelpSequencesThatHaveThem) {
  SimulateOptions options = small_simulation();
  options.workers = options.train_batch_size = options.n = 1;
  options.total_training_steps = 1;
  options.lengths = "pareto:8000,8000";
  double before = std::numeric_limits<double>::infinity();
  for (const double rate : {0.0, 0.5, 1.0}) {
    options.suffix_draft_rate = rate;
    const EngineCounters engine = run_simulation(options, "tlt-base").at(0).engines;
    EXPECT_NEAR(engine.speculative_sequence_steps / engine.sequence_steps, rate, 0.05);
    EXPECT_LT(engine.seconds, before) << rate;
    before = engine.seconds;
  }
}

// Two workers with a response each; a pass takes a second, and half of one while the other worker
// waits.
TEST(SimulationTest, AWorkerIsFasterWhileTheOthersWait) {
  const TestFolder rollouts, costs;
  write_file_atomic(rollouts / "1.jsonl", "{\"response_tokens\":100}\n{\"response_tokens\":300}\n");
  const auto write_costs = [&](const char* name, double seconds) {
    std::string lines;
    for (const char* as : {"tree", "sequences"})
      for (const int rows : {1, 64})
        lines += fmt::format(
            R"({{"as":"{}","rows":{},"context":0,"forward_seconds_p50":{},"head_seconds_p50":0}})"
            "\n",
            as, rows, seconds);
    write_file_atomic(costs / name, lines);
    return costs / name;
  };
  SimulateOptions options;
  options.device = "cpu", options.model = "headline";
  options.workers = options.train_batch_size = 2;
  options.n = options.total_training_steps = 1;
  options.lengths = "rollouts:" + rollouts.path();
  options.bench_forward = write_costs("together.jsonl", 1);
  const double before = run_simulation(options, "plain").at(0).rollout;
  EXPECT_NEAR(before, 301, 1.5);
  options.bench_forward_alone = write_costs("alone.jsonl", 0.5);
  const StepReport report = run_simulation(options, "plain").at(0);
  EXPECT_NEAR(report.rollout, before - 100, 8);  // at most a stride late
  EXPECT_NEAR(report.decoding + report.idle, 2 * report.rollout, 1e-6);
  EXPECT_NEAR(run_simulation(options, "plain-early").at(0).rollout, before, 8) << "it computes";
}

// The second of two groups is short and has equal scores.
TEST(SimulationTest, GroupsWithEqualScoresAreNotTrainedOn) {
  const TestFolder folder;
  std::string rows;
  for (const auto& [tokens, score] : {std::pair(2000, 0), {2000, 1}, {1000, 0}, {1000, 0}})
    rows += fmt::format("{{\"response_tokens\":{},\"score\":{}}}\n", tokens, score);
  write_file_atomic(folder / "1.jsonl", rows);
  SimulateOptions options;
  options.workers = options.total_training_steps = 1;
  options.train_batch_size = options.n = 2;
  options.lengths = "rollouts:" + folder.path();
  const auto run = [&](const char* zero_std, const char* way) {
    options.zero_std = zero_std;
    return run_simulation(options, way).at(0);
  };
  const double all = run("train", "plain").update;
  EXPECT_NEAR(run("forward", "plain").update / all, 7.0 / 9, 0.05);
  EXPECT_NEAR(run("skip", "plain").update / all, 2.0 / 3, 0.05);
  options.workers = 2;  // the one with the short group has idle time
  const double early = run("train", "plain-early").gradients;
  EXPECT_GT(early, 0);
  EXPECT_NEAR(run("forward", "plain-early").gradients / early, 1.0 / 3, 1e-6);
  EXPECT_EQ(run("skip", "plain-early").gradients, 0);
}

// A response of 7,000 tokens.
class SuffixReplaySimulationTest : public ::testing::Test {
 protected:
  SuffixReplaySimulationTest() {
    std::filesystem::create_directory(folder_ / "rollouts");
    write_file_atomic(folder_ / "rollouts/000001.jsonl", "{\"response_tokens\":7000}\n");
    options_.workers = options_.train_batch_size = options_.n = options_.total_training_steps = 1;
    options_.lengths = "rollouts:" + (folder_ / "rollouts");
    options_.bench_suffix = folder_ / "suffix.jsonl";
    options_.draft_acceptance = 0;
    options_.device = "cpu";  // where a draft costs hardly more than its rows
    options_.model = "headline";
    options_.costs = find_device("cpu").constants;
  }

  void write(const std::function<int(int)>& token_at) const {
    nlohmann::json tokens;
    for (int i = 0; i < kTokens; ++i) tokens.push_back(token_at(i));
    write_file_atomic(options_.bench_suffix,
                      nlohmann::json{{"prompt", {0}}, {"response", tokens}}.dump() + "\n");
  }
  void write_repeated() const {
    write([](int i) { return i % 100; });
  }

  EngineCounters run(const std::string& way) const {
    return run_simulation(options_, way).at(0).engines;
  }

  static constexpr int kTokens = 7000;
  const TestFolder folder_;
  SimulateOptions options_ = small_simulation();
};

TEST_F(SuffixReplaySimulationTest, RepeatedTokensAreAccepted) {
  write_repeated();
  const EngineCounters fast = run("tlt"), plain = run("plain");
  EXPECT_EQ(fast.tokens, kTokens);
  EXPECT_EQ(plain.tokens, kTokens);
  // All but the first 100 tokens.
  EXPECT_GT(fast.speculative_tokens / fast.speculative_sequence_steps, 6);
  EXPECT_LT(fast.steps, kTokens / 5);
  EXPECT_LT(fast.seconds, 0.5 * plain.seconds);
}

// A token is followed by another one each time: what is found is not accepted.
TEST_F(SuffixReplaySimulationTest, RejectedDraftsCostNoRows) {
  RandomStream random(1, {});
  write([&](int) { return static_cast<int>(random.uniform() * 1000); });
  const EngineCounters fast = run("tlt"), plain = run("plain");
  EXPECT_EQ(fast.tokens, kTokens);
  EXPECT_LT(fast.seconds, 1.05 * plain.seconds);
}

TEST_F(SuffixReplaySimulationTest, WaysWithoutSuffixDraftsAreTheSame) {
  write_repeated();
  const double seconds = run("tlt-published").seconds;
  options_.bench_suffix.clear();
  EXPECT_EQ(run("tlt-published").seconds, seconds);
}

// Unfinished groups of a step are decoded again in the next one, with groups of the same prompts.
TEST_F(SuffixReplaySimulationTest, EveryTokenIsGeneratedOnce) {
  std::string rollouts, tokens;
  for (int i = 0; i < 8; ++i) {
    const int length = 40 + 90 * i;
    rollouts += fmt::format("{{\"response_tokens\":{}}}\n", length);
    nlohmann::json ids;
    for (int k = 0; k < length; ++k) ids.push_back(k * k % 97);
    tokens += nlohmann::json{{"prompt", {i / 2}}, {"response", ids}}.dump() + "\n";
  }
  write_file_atomic(folder_ / "rollouts/000001.jsonl", rollouts);
  write_file_atomic(options_.bench_suffix, tokens);
  options_.train_batch_size = 4;
  options_.n = options_.workers = 2;
  options_.total_training_steps = 4;
  for (const char* way : {"model-free", "tlt", "tlt-early", "tlt+partial"})
    for (const StepReport& step : run_simulation(options_, way))
      EXPECT_NEAR(step.engines.tokens / step.tokens, 1, 1e-6) << way;
}

// M/D/1-like: deterministic service. With one slot per worker and lengths of equal size, groups of
// one are served one after the other.
TEST(SimulationTest, QueueOfEqualRequestsIsServedInRounds) {
  SimulateOptions options = small_simulation();
  options.n = options.max_num_seqs = 1;
  options.workers = 3;
  options.train_batch_size = 7;
  options.total_training_steps = 1;
  options.lengths = "pareto:500,500";
  const StepReport report = run_simulation(options, "plain").at(0);
  EXPECT_NEAR(report.decoding / 7 * 3, report.rollout, 1e-6);  // 7 requests, 3 rounds
  EXPECT_NEAR(report.idle / 2 * 3, report.rollout, 1e-6);      // two workers miss the last one
}

TEST(SimulationTest, SpeedupsFollowAmdahl) {
  SimulateOptions options = small_simulation();
  options.lengths = "lognormal:800,8000";
  const StepReport plain = run_simulation(options, "plain").at(0),
                   fast = run_simulation(options, "static").at(0);
  const double share = plain.rollout / plain.seconds, rollout = plain.rollout / fast.rollout;
  EXPECT_NEAR(plain.seconds / fast.seconds, 1 / (1 - share + share / rollout), 0.01);
}

TEST(SimulationTest, SameSeedSameResult) {
  SimulateOptions options = small_simulation();
  for (const char* way : {"tlt-published", "tlt-early"}) {
    const auto one = run_simulation(options, way), other = run_simulation(options, way);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].seconds, other[i].seconds) << way;
  }
  const double before = rollout_seconds(options, "plain");
  options.seed = 1;
  EXPECT_NE(rollout_seconds(options, "plain"), before);
}

TEST(SimulationTest, MoreOfAResourceIsNeverSlower) {
  SimulateOptions options = small_simulation();
  const double base = step_seconds(options, "plain");
  options.device = "H200";  // more bandwidth
  EXPECT_LT(step_seconds(options, "plain"), base);
  options = small_simulation();
  options.workers = 8;
  EXPECT_LT(step_seconds(options, "plain"), base);
  options = small_simulation();
  options.costs.train_efficiency = 0.8;
  EXPECT_LT(step_seconds(options, "plain"), base);
  options = small_simulation();
  options.max_response_length = 4096;
  EXPECT_LT(step_seconds(options, "plain"), base);
  double slower = 0;
  for (const double acceptance : {0.9, 0.8, 0.6, 0.3}) {
    options = small_simulation();
    options.draft_acceptance = acceptance;
    const double seconds = rollout_seconds(options, "static");
    EXPECT_GT(seconds, slower) << acceptance;
    slower = seconds;
  }
}

// In the limit of infinitely fast reading, a token row costs its arithmetic: speculation loses.
TEST(SimulationTest, SpeculationDoesNotPayAboveTheRidge) {
  SimulateOptions options = small_simulation();
  options.workers = 1;
  options.train_batch_size = 8;
  options.lengths = "pareto:1000,1000";  // no tail
  options.device = "H20";
  options.costs = {.memory_efficiency = 2,
                   .context_efficiency = 2,
                   .compute_efficiency = 0.1,
                   .layer_seconds = 0,
                   .level_seconds = 0,
                   .cycle_seconds = 0};
  const double plain = rollout_seconds(options, "plain");
  EXPECT_GT(rollout_seconds(options, "static"), 1.5 * plain);
  EXPECT_LT(rollout_seconds(options, "tlt"), 1.05 * plain);  // the tuner finds it out
}

TEST(SimulationTest, FullSystemIsFasterWhereThereIsATail) {
  SimulateOptions options = small_simulation();
  options.total_training_steps = 8;
  const double plain = rollout_seconds(options, "plain"), full = rollout_seconds(options, "tlt");
  EXPECT_LT(full, plain / 1.3);
  options.draft_acceptance = 0.92;  // more training hardly helps: gradients are worth more
  EXPECT_LT(step_seconds(options, "tlt-early"), 0.97 * step_seconds(options, "tlt"));
  EXPECT_LT(step_seconds(options, "plain-early"), 0.97 * step_seconds(options, "plain"));
  int64_t migrated = 0;
  for (const StepReport& step : run_simulation(options, "tlt")) migrated += step.migrated;
  EXPECT_GT(migrated, 0);
}

TEST(SimulationTest, StrideHardlyChangesTheResult) {
  SimulateOptions options = small_simulation();
  options.workers = 2;
  options.train_batch_size = 4;
  options.total_training_steps = 8;  // in fewer, the tuner's first choices decide
  for (const char* way : {"tlt-published", "tlt"}) {
    options.stride = 1;
    const double exact = rollout_seconds(options, way);
    options.stride = 8;
    EXPECT_NEAR(rollout_seconds(options, way) / exact, 1, 0.04) << way;
    options.stride = 64;
    EXPECT_NEAR(rollout_seconds(options, way) / exact, 1, 0.06) << way;
  }
}

TEST(SimulationTest, IdleWorkersTrainADraftModelFromRandomWeights) {
  SimulateOptions options = small_simulation();
  options.total_training_steps = 12;
  options.draft_acceptance = 0;
  const auto steps = run_simulation(options, "tlt");
  EXPECT_EQ(steps.front().draft_acceptance, 0);
  EXPECT_GT(steps.back().draft_acceptance, 0.5);
  options.drift = 1;  // each update undoes it
  EXPECT_EQ(run_simulation(options, "tlt").back().draft_acceptance, 0);
}

TEST(SimulationTest, ASingleWorkerTrainsAfterItsRollouts) {
  SimulateOptions options = small_simulation();
  options.workers = 1;
  options.draft_acceptance = 0;
  const auto steps = run_simulation(options, "tlt");
  EXPECT_NEAR(steps[0].draft_gap, 0.05 * steps[0].rollout, 1e-9);
  EXPECT_GT(steps[1].draft_acceptance, 0);
}

// Responses of equal length, one at a time.
SimulateOptions one_after_another() {
  SimulateOptions options = small_simulation();
  options.n = options.max_num_seqs = options.workers = 1;
  options.train_batch_size = 4;
  options.total_training_steps = 3;
  options.lengths = "pareto:500,500";
  return options;
}

TEST(SimulationTest, PartialRolloutsEndWithEnoughGroups) {
  SimulateOptions options = one_after_another();
  options.over_sampling = 1.5;
  const auto whole = run_simulation(options, "plain"),
             partial = run_simulation(options, "plain+partial");
  for (size_t i = 0; i < partial.size(); ++i) {
    EXPECT_EQ(partial[i].responses, 4);
    EXPECT_EQ(partial[i].updated_tokens, 2000);
    EXPECT_NEAR(partial[i].rollout / whole[i].rollout, 1, 1e-9);
  }
}

TEST(SimulationTest, PartialRolloutsWithoutOverSamplingAreWhole) {
  SimulateOptions options = small_simulation();
  options.over_sampling = 1;
  for (const std::string way : {"plain", "tlt-early"}) {
    const auto whole = run_simulation(options, way),
               partial = run_simulation(options, way + "+partial");
    for (size_t i = 0; i < partial.size(); ++i) {
      EXPECT_EQ(partial[i].updated_tokens, whole[i].tokens) << way;
      EXPECT_NEAR(partial[i].seconds / whole[i].seconds, 1, 0.01) << way;  // other strides
    }
  }
}

TEST(SimulationTest, PartialRolloutsLoseNoToken) {
  SimulateOptions options = small_simulation();
  options.total_training_steps = 12;
  for (const char* way : {"plain+partial", "tlt-early+partial"}) {
    double rolled_out = 0, updated = 0;
    for (const StepReport& step : run_simulation(options, way)) {
      EXPECT_NEAR(step.engines.tokens / step.tokens, 1, 1e-6) << way;
      EXPECT_NEAR((step.decoding + step.idle) / (4 * step.rollout), 1, 1e-6) << way;
      EXPECT_GE(step.updated_tokens, 0) << way;
      rolled_out += step.tokens;
      updated += step.updated_tokens;
      EXPECT_LE(updated, rolled_out * (1 + 1e-9)) << way;
    }
    // At most half a batch is under way, if some of its groups are the longest ones.
    EXPECT_GT(updated, 0.85 * rolled_out) << way;
  }
  EXPECT_LT(rollout_seconds(options, "plain+partial"), 0.8 * rollout_seconds(options, "plain"));
}

// r + (N - 1) max(r, u) + u, and N times the weights. Only the first of several updates that follow
// each other without a gap waits for scores.
TEST(SimulationTest, OneStepOffHidesTheShorterOfRolloutsAndTraining) {
  SimulateOptions options = small_simulation();
  options.total_training_steps = 5;
  options.lengths = "pareto:1000,1000";
  options.reward_seconds = 2;
  for (const double train_efficiency : {0.9, 0.01}) {
    options.costs.train_efficiency = train_efficiency;
    options.workers = 2;
    const StepReport half = run_simulation(options, "plain").at(0);
    options.workers = 4;
    const double rollout = half.rollout, training = half.seconds - half.rollout - half.sync;
    EXPECT_EQ(rollout > training, train_efficiency > 0.5);
    const CostModel costs({.device = find_device("H100"), .model = find_model("Qwen2.5-7B")});
    const double expected = rollout + training +
                            4 * std::max(rollout, training - options.reward_seconds) +
                            5 * costs.weight_broadcast();
    EXPECT_NEAR(step_seconds(options, "plain+one-step-off") / expected, 1, 1e-9);
  }
}

TEST(SimulationTest, RewardsQueue) {
  SimulateOptions options = small_simulation();
  options.workers = options.train_batch_size = 1;
  options.lengths = "pareto:500,500";
  options.reward_seconds = 3;
  EXPECT_NEAR(run_simulation(options, "plain").at(0).reward, 3, 1e-9);
  options.reward_concurrency = 2;  // 8 responses at the same time, two by two
  EXPECT_NEAR(run_simulation(options, "plain").at(1).reward, 12, 0.02);
}

TEST(SimulationTest, ContradictionsAreInputErrors) {
  SimulateOptions options = small_simulation();
  options.max_num_batched_tokens = 100;
  EXPECT_THROW(Simulation(options, find_way("plain")), InputError);
  options = small_simulation();
  options.device = "RTX3090";
  options.model = "Llama-70B";
  EXPECT_THROW(Simulation(options, find_way("plain")), InputError);
  EXPECT_THROW(find_way("fastest"), InputError);
  EXPECT_THROW(find_way("tlt+partly"), InputError);
  EXPECT_THROW(find_way("tlt+"), InputError);
  EXPECT_THROW(find_way("tlt-early+one-step-off"), InputError);
  options = small_simulation();
  options.rollout_workers = 4;
  EXPECT_THROW(Simulation(options, find_way("tlt+one-step-off")), InputError);
  options.workers = 1;
  EXPECT_THROW(Simulation(options, find_way("tlt+one-step-off")), InputError);
}

}  // namespace
}  // namespace tlt::simulate
