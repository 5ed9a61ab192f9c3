// Invariant: gradients that idle workers compute during the rollouts change nothing: rollouts, the
// policy's weights and its optimizer are the same bytes with and without them.
//
// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/small_run.h"

namespace tlt {
namespace {

using tests::read_text;
using tests::run_program;
using tests::Scratch;
using tests::small_run;

constexpr int kSteps = 2;

class EarlyGradientsNeverChangeWeights : public ::testing::TestWithParam<std::string> {
 protected:
  // Returns the seconds of early gradients in all steps.
  double run(const std::string& name, int workers, std::vector<std::string> more) const {
    more.insert(more.end(), {"model.dtype=" + GetParam(), "trainer.threads=1",
                             "data.max_response_length=200", "speculative.train.gap_share=0"});
    EXPECT_EQ(run_program(small_run(scratch_ / name, kSteps, workers, more), scratch_ / "log"), 0)
        << read_text(scratch_ / "log");
    double seconds = 0;
    std::ifstream file(scratch_ / name / "metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      seconds += nlohmann::json::parse(line).value("rollout/early_gradient_seconds", 0.0);
    return seconds;
  }
  void expect_same(const std::string& name, const std::string& as) const {
    for (int step = 1; step <= kSteps; ++step)
      for (const std::string& file : tests::state_files(step)) {
        const std::string expected = read_text(scratch_ / as / file);
        ASSERT_FALSE(expected.empty()) << file;
        EXPECT_TRUE(read_text(scratch_ / name / file) == expected)
            << name << ": " << file << " differs";
      }
  }

  const Scratch scratch_;
};

TEST_P(EarlyGradientsNeverChangeWeights, ForAnyWorkersLossAndOptimizer) {
  const std::map<std::string, std::vector<std::string>> kinds = {
      {"kl", {}},  // small_run's: KL, entropy, two mini-batches
      {"token_mean",
       {"actor.use_kl_loss=false", "actor.loss_agg_mode=token-mean",
        "actor.ppo_mini_batch_size=0"}},
      {"zero", {"actor.use_distributed_optimizer=true", "algorithm.use_kl_in_reward=true"}},
      {"lora", {"model.lora_rank=4", "actor.ppo_epochs=2"}}};
  const bool is_float = GetParam() == "float32";
  for (const auto& [kind, options] : kinds) {
    if ((kind == "kl" || kind == "lora") != is_float) continue;  // two kinds for each type
    std::vector<std::string> off = options;
    off.push_back("actor.early_gradients=false");
    EXPECT_EQ(run(kind + "_off", 1, off), 0);
    double seconds = 0;
    for (const int workers : {1, 2, 3}) {
      const std::string name = kind + std::to_string(workers);
      seconds += run(name, workers, options);
      expect_same(name, kind + "_off");
    }
    EXPECT_GT(seconds, 0) << kind << ": no worker was idle with a finished group";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EarlyGradientsNeverChangeWeights,
                         ::testing::Values("float32", "bfloat16"));

}  // namespace
}  // namespace tlt
