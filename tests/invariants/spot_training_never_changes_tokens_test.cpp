// Invariant: results do not depend on the draft model. Trained, untrained or poisoned, by any
// number of workers: rollouts, the policy's weights and its optimizer are the same bytes.
//
// TLT_INVARIANT_STEPS=20 makes the runs this long, each kind on one, two and three workers:
// build/tests/tlt_invariant_test --gtest_filter='*SpotTraining*'
//
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/environment.h"
#include "tests/support/small_run.h"

namespace tlt {
namespace {

using tests::read_text;
using tests::Scratch;

const char* const kAsked = std::getenv("TLT_INVARIANT_STEPS");
const int kSpotSteps = kAsked ? std::atoi(kAsked) : 4;

// For idle time, and for training in the little there is on a fast machine: few, long groups, small
// optimizer steps, nothing else to do.
const std::vector<std::string> kIdling = {
    "actor.early_gradients=false", "trainer.threads=1", "data.max_response_length=200",
    "speculative.train.gap_share=0.5", "speculative.train.step_tokens=128"};

// So that every step is speculative, however slow.
const std::vector<std::string> kAlways = {"speculative.drafters=[\"eagle\"]",
                                          "speculative.bs_threshold=64",
                                          "speculative.eagle.tune_algorithm=BEG"};

// The sums of the metrics of all steps.
std::map<std::string, double> sums_of(const std::filesystem::path& run) {
  std::map<std::string, double> sums;
  std::ifstream file(run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    for (const auto& [name, value] : row.items())
      if (value.is_number()) sums[name] += value.get<double>();
  }
  return sums;
}

class SpotTrainingNeverChangesTokens : public ::testing::TestWithParam<std::string> {
 protected:
  // The sums of the metrics of a run in the folder `name`.
  std::map<std::string, double> run(const std::string& name, int workers,
                                    std::vector<std::string> more) const {
    more.insert(more.end(), kIdling.begin(), kIdling.end());
    if (tests::device_of_runs().empty()) more.push_back(tests::kDemoModel);  // else slow enough
    more.push_back("model.dtype=" + GetParam());
    tests::expect_small_run(scratch_, name, kSpotSteps, workers, more);
    const auto sums = sums_of(scratch_ / name);
    if (kAsked)
      std::cout << GetParam() << " " << name << ": " << kSpotSteps << " steps, "
                << sums.at("rollout/tokens") << " tokens" << std::endl;
    return sums;
  }
  void expect_same(const std::string& name) const {
    for (int step = 1; step <= kSpotSteps; ++step)
      for (const std::string& file : tests::state_files(step)) {
        const std::string expected = read_text(scratch_ / "off" / file);
        ASSERT_FALSE(expected.empty()) << file;
        EXPECT_TRUE(read_text(scratch_ / name / file) == expected)
            << name << ": " << file << " differs";
      }
  }

  const Scratch scratch_;
  const tests::Variable without_kernels_{tests::kWithoutKernels, "1"};
};

TEST_P(SpotTrainingNeverChangesTokens, OnOffAndPoisonedWithOneToThreeWorkers) {
  const auto off = run("off", 1, {"speculative.train.enable_drafter_training=false"});
  EXPECT_FALSE(off.contains("drafter/version"));
  if (kAsked)
    for (const int workers : {2, 3}) {
      const std::string name = "off" + std::to_string(workers);
      run(name, workers, {"speculative.train.enable_drafter_training=false"});
      expect_same(name);
    }
  // Runs on a slow device are few.
  const bool is_slow = !tests::device_of_runs().empty();
  for (const int workers : is_slow ? std::vector{1} : std::vector{1, 2, 3}) {
    const std::string name = "trained" + std::to_string(workers);
    const bool must_draft = workers != 2;
    std::vector<std::string> options = {"speculative.train.optim.lr=0.004"};
    if (must_draft) options.insert(options.end(), kAlways.begin(), kAlways.end());
    const auto on = run(name, workers, options);
    expect_same(name);
    EXPECT_GE(on.at("speculation/eagle/steps"), must_draft ? 1 : 0) << name;
    EXPECT_GT(on.at("drafter/steps"), 0) << name;
    EXPECT_GT(on.at("drafter/published"), 0) << name;
    EXPECT_EQ(on.at("drafter/workers_off"), 0) << name;
  }
  // Poisoned: a learning rate that destroys the draft model.
  const std::vector<int> poisoned = is_slow ? std::vector{2} : std::vector{1, 2};
  for (const int workers : kAsked ? std::vector{1, 2, 3} : poisoned) {
    const std::string name = "poisoned" + std::to_string(workers);
    const auto bad =
        run(name, workers, {"speculative.train.optim.lr=1", "speculative.drafters=[\"eagle\"]"});
    expect_same(name);
    EXPECT_GT(bad.at("drafter/published") + bad.at("drafter/workers_off"), 0) << name;
  }
}

// An EAGLE-3 draft model from random weights, with an LM head of few tokens and of all; and the run
// resumes from a checkpoint with the draft vocabulary it had.
TEST_P(SpotTrainingNeverChangesTokens, WithAnEagle3DraftModelFromScratch) {
  run("off", 1, {"speculative.train.enable_drafter_training=false"});
  for (const auto& [workers, head] : {std::pair(1, 16), {2, 0}}) {
    const std::string name = "eagle3_" + std::to_string(workers);
    std::vector<std::string> options = {
        "speculative.train.algorithm=eagle3", "speculative.train.optim.lr=0.004",
        "speculative.train.draft_vocab_size=" + std::to_string(head)};
    options.insert(options.end(), kAlways.begin(), kAlways.end());
    const auto on = run(name, workers, options);
    expect_same(name);
    EXPECT_GT(on.at("speculation/eagle/steps"), 0) << name;
    EXPECT_EQ(on.at("speculation/eagle/failed"), 0) << name;
    EXPECT_GT(on.at("drafter/steps"), 0) << name;
    EXPECT_GT(on.at("drafter/published"), 0) << name;
    EXPECT_EQ(on.at("drafter/workers_off"), 0) << name;
    const auto config = nlohmann::json::parse(read_text(scratch_ / name / "drafter/config.json"));
    EXPECT_EQ(config["architectures"][0], "LlamaForCausalLMEagle3");
    if (workers > 1) continue;
    std::filesystem::remove_all(scratch_ / name / "checkpoints/step_000004");
    std::ofstream(scratch_ / name / "checkpoints/latest") << "step_000003\n";
    run(name, workers, options);
    expect_same(name);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SpotTrainingNeverChangesTokens,
                         ::testing::Values("float32", "bfloat16"));

}  // namespace
}  // namespace tlt
