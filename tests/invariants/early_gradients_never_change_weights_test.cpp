// Invariant: gradients that idle workers compute during the rollouts change nothing: rollouts, the
// policy's weights and its optimizer are the same bytes with and without them.
//
// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "tests/support/environment.h"
#include "tests/support/small_run.h"

namespace tlt {
namespace {

using tests::read_text;
using tests::Scratch;

constexpr int kSteps = 2;

// With reward.threads=1: every eighth score, and so a worker's last one, takes a second. While it
// waits for that, its other groups have all of theirs. The first line is an empty response, which
// tests the program.
constexpr const char* kSlowReward =
    "reward.command=n=0; while read -r line; do "
    "[ $n -gt 0 ] && [ $((n % 8)) = 0 ] && sleep 1; n=$((n + 1)); echo 0; done";

class EarlyGradientsNeverChangeWeights : public ::testing::TestWithParam<std::string> {
 protected:
  void run(const std::string& name, int workers, std::vector<std::string> more) const {
    more.insert(more.end(), {"model.dtype=" + GetParam(), "trainer.threads=1",
                             "data.max_response_length=200", "speculative.train.gap_share=0"});
    tests::expect_small_run(scratch_, name, kSteps, workers, more);
    EXPECT_EQ(read_text(scratch_ / "log").find("computing them again"), std::string::npos)
        << "two workers have computed a group";
  }
  // The sum of a metric over all steps.
  double sum(const std::string& name, const std::string& metric) const {
    return tests::sum_of_metric(scratch_ / name, metric);
  }
  void expect_same(const std::string& name, const std::string& as) const {
    tests::expect_same_run(scratch_ / name, scratch_ / as, kSteps);
  }

  const Scratch scratch_;
  const tests::Variable without_kernels_{tests::kWithoutKernels, "1"};
};

TEST_P(EarlyGradientsNeverChangeWeights, ForAnyWorkersLossAndOptimizer) {
  std::map<std::string, std::vector<std::string>> kinds = {
      {"kl", {}},  // small_run's: KL, entropy, two mini-batches
      {"token_mean",
       {"actor.use_kl_loss=false", "actor.loss_agg_mode=token-mean", "actor.ppo_mini_batch_size=0",
        "speculative.train.enable_drafter_training=false"}},
      {"zero", {"actor.use_distributed_optimizer=true", "algorithm.use_kl_in_reward=true"}},
      {"lora", {"model.lora_rank=4", "actor.ppo_epochs=2"}}};
  const bool is_float = GetParam() == "float32";
  for (auto& [kind, options] : kinds) {
    options.insert(options.end(), {"reward.functions=[\"countdown_trace\",\"command\"]",
                                   kSlowReward, "reward.threads=1"});
    if ((kind == "kl" || kind == "lora") != is_float) continue;  // two kinds for each type
    std::vector<std::string> off = options;
    off.push_back("actor.early_gradients=false");
    run(kind + "_off", 1, off);
    EXPECT_EQ(sum(kind + "_off", "rollout/early_gradient_seconds"), 0);
    for (const int workers :
         tests::device_of_runs().empty() ? std::vector{1, 2, 3} : std::vector{2}) {
      const std::string name = kind + std::to_string(workers);
      run(name, workers, options);
      // One worker has a group of the first mini-batch that is finished before the last score; of
      // several the one with two groups has, if all groups count and none migrates.
      if (workers == 1 || kind == "token_mean") {
        EXPECT_GT(sum(name, "rollout/early_gradient_seconds"), 0) << name;
      }
      if (workers == 1) {
        EXPECT_EQ(sum(name, "rollout/early_reference_seconds") > 0, kind != "token_mean") << name;
      }
      expect_same(name, kind + "_off");
    }
  }
}

// Only prompt 0 is in the first mini-batch. Its responses are the shortest of the second step, and
// those of prompt 2, which the same worker has, the longest: so the worker of prompt 1 is idle when
// it can compute prompt 0. That it gets the group in time depends on the machine: one run of a few
// must do.
TEST_P(EarlyGradientsNeverChangeWeights, WhenAnotherWorkerComputesThem) {
  constexpr int kMostRuns = 6;
  const std::vector<std::string> options = {tests::kDemoModel, "data.train_batch_size=3",
                                            "actor.ppo_mini_batch_size=1", "data.seed=7",
                                            "speculative.enable=false"};
  std::vector<std::string> off = options;
  off.push_back("actor.early_gradients=false");
  run("off", 1, off);
  double moved = 0;
  for (int i = 0; i < kMostRuns && moved == 0; ++i) {
    const std::string name = "on" + std::to_string(i);
    run(name, 2, options);
    expect_same(name, "off");
    moved = sum(name, "rollout/moved_groups");
  }
  EXPECT_GT(moved, 0);
}

INSTANTIATE_TEST_SUITE_P(Types, EarlyGradientsNeverChangeWeights,
                         ::testing::Values("float32", "bfloat16"));

}  // namespace
}  // namespace tlt
