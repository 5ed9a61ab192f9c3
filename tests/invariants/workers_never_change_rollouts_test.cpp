// Invariant: 1, 2 and 3 workers, with any number of threads, give the same rollouts and the same
// weights after several steps, with any migrations between them.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/small_run.h"

namespace tlt {
namespace {

using ::testing::HasSubstr;
using tests::expect_same_run;
using tests::run_program;
using tests::Scratch;
using tests::small_run;

constexpr int kWorkerSteps = 2;

// The values of a metric, one per step.
std::vector<double> values_of(const std::filesystem::path& run, const std::string& name) {
  std::ifstream file(run / "metrics.jsonl");
  std::vector<double> values;
  for (std::string line; std::getline(file, line);)
    if (const auto row = nlohmann::json::parse(line); row.contains(name))
      values.push_back(row[name].get<double>());
  return values;
}

class WorkersNeverChangeRollouts : public ::testing::TestWithParam<std::string> {};

TEST_P(WorkersNeverChangeRollouts, WithOneToThreeWorkersAndAnyThreads) {
  const Scratch scratch;
  const std::string type = "model.dtype=" + GetParam();
  ASSERT_EQ(run_program(small_run(scratch / "one", kWorkerSteps, 1, {type, "trainer.threads=1"}),
                        scratch / "log"),
            0)
      << tests::read_text(scratch / "log");
  for (const auto& [workers, threads] : {std::pair(1, 2), {2, 1}, {3, 1}}) {
    const auto folder = scratch / ("workers" + std::to_string(workers));
    ASSERT_EQ(run_program(small_run(folder, kWorkerSteps, workers,
                                    {type, "trainer.threads=" + std::to_string(threads)}),
                          scratch / "log"),
              0)
        << tests::read_text(scratch / "log");
    SCOPED_TRACE(std::to_string(workers) + " workers of " + std::to_string(threads) + " threads");
    expect_same_run(folder, scratch / "one", kWorkerSteps);
  }
}

// With an adapter instead of the weights; the rollout logprobs then equal the trainer's too.
TEST_P(WorkersNeverChangeRollouts, WithAnAdapter) {
  const Scratch scratch;
  for (const int workers : {1, 2}) {
    auto options = tests::with_adapter();
    options.push_back("model.dtype=" + GetParam());
    options.push_back("trainer.threads=1");
    const auto folder = scratch / ("workers" + std::to_string(workers));
    ASSERT_EQ(run_program(small_run(folder, kWorkerSteps, workers, options), scratch / "log"), 0)
        << tests::read_text(scratch / "log");
    const std::string metrics = tests::read_text(folder / "metrics.jsonl");
    const std::string key = "\"training/rollout_probs_diff_max\":";
    int seen = 0;
    for (size_t at = metrics.find(key); at != std::string::npos; at = metrics.find(key, at + 1)) {
      EXPECT_EQ(std::stod(metrics.substr(at + key.size())), 0) << metrics;
      ++seen;
    }
    EXPECT_EQ(seen, kWorkerSteps);
  }
  expect_same_run(scratch / "workers2", scratch / "workers1", kWorkerSteps);
  const std::string file = tests::adapter_file(kWorkerSteps);
  ASSERT_FALSE(tests::read_text(scratch / "workers1" / file).empty());
  EXPECT_EQ(tests::read_text(scratch / "workers2" / file),
            tests::read_text(scratch / "workers1" / file));
}

// Workers that share the optimizer's state: each checkpoint equals that of a single worker, and
// another number of workers, sharing the state or not, can resume from it.
TEST_P(WorkersNeverChangeRollouts, WithASharedOptimizer) {
  const Scratch scratch;
  for (const std::string kind : {"all", "adapter", "muon"}) {
    const bool has_adapter = kind == "adapter";
    std::vector<std::string> options = {"model.dtype=" + GetParam(), "trainer.threads=1"};
    if (kind == "muon") options.push_back("actor.optim.optimizer=Muon");
    if (has_adapter)
      for (const std::string& option : tests::with_adapter()) options.push_back(option);
    const auto run = [&](const std::filesystem::path& folder, int steps, int workers,
                         bool is_shared) {
      auto words = options;
      if (is_shared) words.push_back("actor.use_distributed_optimizer=true");
      EXPECT_EQ(run_program(small_run(folder, steps, workers, words), scratch / "log"), 0)
          << tests::read_text(scratch / "log");
    };
    const auto whole = scratch / kind;
    run(whole, kWorkerSteps, 1, false);
    struct Crew {
      int workers;
      bool is_shared;
    };
    std::vector<std::pair<Crew, Crew>> crews = {{{3, true}, {1, false}}, {{1, false}, {2, true}}};
    if (kind != "all") crews = {{{2, true}, {3, true}}};
    for (const auto& [first, then] : crews) {
      SCOPED_TRACE(fmt::format("{}, {} workers, then {}", kind, first.workers, then.workers));
      const auto folder = scratch / fmt::format("{}{}{}", kind, first.workers, then.workers);
      run(folder, 1, first.workers, first.is_shared);
      run(folder, kWorkerSteps, then.workers, then.is_shared);
      expect_same_run(folder, whole, kWorkerSteps);
      const double bytes = values_of(folder, "train/optimizer_bytes").back(),
                   all = values_of(whole, "train/optimizer_bytes").back();
      EXPECT_EQ(bytes < all, then.is_shared) << bytes << " of " << all;
      if (!has_adapter) continue;
      const std::string file = tests::adapter_file(kWorkerSteps);
      EXPECT_EQ(tests::read_text(folder / file) == tests::read_text(whole / file), true);
    }
  }
}

// With dynamic sampling, which requests more prompts depending on the scores of all workers.
TEST_P(WorkersNeverChangeRollouts, WithDynamicSampling) {
  const Scratch scratch;
  for (const int workers : {1, 2, 3}) {
    auto options = tests::with_dynamic_sampling();
    options.push_back("model.dtype=" + GetParam());
    options.push_back("trainer.threads=1");
    const auto folder = scratch / ("workers" + std::to_string(workers));
    ASSERT_EQ(run_program(small_run(folder, kWorkerSteps, workers, options), scratch / "log"), 0)
        << tests::read_text(scratch / "log");
    EXPECT_GT(tests::sum_of_metric(folder, "train/num_gen_batches"), kWorkerSteps);
    EXPECT_GT(tests::sum_of_metric(folder, "rollout/dynamic_filter/drop_zero_std"), 0);
    EXPECT_EQ(tests::sum_of_metric(folder, "rollout/frac_reward_zero_std") > 0, true);
    if (workers > 1) expect_same_run(folder, scratch / "workers1", kWorkerSteps);
  }
  // A row that occurs twice in a step is rolled out twice, with different responses except by
  // chance.
  int twice = 0, copies = 0;
  for (int step = 1; step <= kWorkerSteps; ++step) {
    std::map<std::pair<int, int>, std::string> outputs;
    std::istringstream rows(
        tests::read_text(scratch / "workers1" / tests::state_files(step).back()));
    for (std::string line; std::getline(rows, line);) {
      const auto row = nlohmann::json::parse(line);
      const auto output = row.at("output").get<std::string>();
      const auto [first, is_new] =
          outputs.emplace(std::pair<int, int>(row.at("prompt_id"), row.at("sample")), output);
      twice += is_new ? 0 : 1;
      copies += !is_new && first->second == output ? 1 : 0;
    }
  }
  EXPECT_LT(copies, twice);
}

// Responses that start on one worker and end on another.
TEST_P(WorkersNeverChangeRollouts, WithAnyMigrations) {
  const Scratch scratch;
  const auto options = [&](int consolidate_below) {
    return std::vector<std::string>{
        "model.dtype=" + GetParam(), "trainer.threads=1", "data.max_response_length=192",
        "speculative.train.training_interval_steps=1",
        "speculative.train.consolidate_below=" + std::to_string(consolidate_below)};
  };
  ASSERT_EQ(run_program(small_run(scratch / "one", kWorkerSteps, 1, options(0)), scratch / "log"),
            0)
      << tests::read_text(scratch / "log");
  for (const auto& [workers, below] : {std::pair(2, 1000), {3, 1000}, {3, 10}}) {
    const auto folder = scratch / fmt::format("{}_of_{}", below, workers);
    ASSERT_EQ(
        run_program(small_run(folder, kWorkerSteps, workers, options(below)), scratch / "log"), 0)
        << tests::read_text(scratch / "log");
    SCOPED_TRACE(folder.filename());
    expect_same_run(folder, scratch / "one", kWorkerSteps);
    double moved = 0;
    for (const double value : values_of(folder, "rollout/moved_sequences")) moved += value;
    EXPECT_GT(moved, 0);
    EXPECT_EQ(values_of(folder, "drafter/workers_off"), std::vector<double>(kWorkerSteps, 0));
    EXPECT_THAT(tests::read_text(scratch / "log"), Not(HasSubstr("failed")));
  }
}

// The negative control: another seed shows in every file but loop.json, which counts steps and rows.
TEST_P(WorkersNeverChangeRollouts, AnotherSeedIsNoticed) {
  const Scratch scratch;
  const std::string type = "model.dtype=" + GetParam();
  ASSERT_EQ(run_program(small_run(scratch / "a", 1, 1, {type}), scratch / "log"), 0)
      << tests::read_text(scratch / "log");
  ASSERT_EQ(run_program(small_run(scratch / "b", 1, 2, {type, "trainer.seed=1"}), scratch / "log"),
            0);
  std::vector<std::string> files = tests::state_files(1);
  std::erase_if(files, [](const std::string& file) { return file.ends_with("loop.json"); });
  for (const std::string& file : files)
    EXPECT_NE(tests::read_text(scratch / "a" / file), tests::read_text(scratch / "b" / file))
        << file;
  EXPECT_NE(tests::identity_text(scratch / "a"), tests::identity_text(scratch / "b"));
}

INSTANTIATE_TEST_SUITE_P(Types, WorkersNeverChangeRollouts,
                         ::testing::Values("float32", "bfloat16"));

}  // namespace
}  // namespace tlt
