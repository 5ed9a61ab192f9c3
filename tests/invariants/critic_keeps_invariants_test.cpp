// Invariant: with a critic (adv_estimator=gae) or greedy baselines (remax), workers, speculation,
// early gradients, a shared optimizer state and a resume change no bit of rollouts, weights and
// optimizers.
//
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/small_run.h"

namespace tlt {
namespace {

using tests::read_text;
using tests::run_program;
using tests::Scratch;
using tests::small_run;

constexpr int kCriticSteps = 3;

class CriticKeepsInvariants : public ::testing::TestWithParam<std::string> {
 protected:
  bool has_critic() const { return GetParam() == "gae"; }
  void run(const std::string& name, int workers, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"trainer.threads=1", "model.dtype=float32",
                                    "algorithm.adv_estimator=" + GetParam()};
    if (has_critic())
      all.insert(all.end(),
                 {"critic.optim.lr=1e-3", "algorithm.lam=0.95", "trainer.critic_warmup=2"});
    all.insert(all.end(), more.begin(), more.end());
    tests::expect_small_run(scratch_, name, kCriticSteps, workers, all);
  }
  void expect_same(const std::string& name, const std::string& as) const {
    tests::expect_same_run(scratch_ / name, scratch_ / as, kCriticSteps);
    for (int step = 1; step <= kCriticSteps && has_critic(); ++step)
      tests::expect_same_files(scratch_ / name, scratch_ / as, tests::critic_files(step));
  }
  std::string file(const std::string& name, const std::string& path) const {
    return read_text(scratch_ / name / path);
  }
  nlohmann::json metrics(const std::string& name, size_t step) const {
    std::istringstream lines(file(name, "metrics.jsonl"));
    std::string line;
    for (size_t i = 0; i <= step; ++i) std::getline(lines, line);
    return nlohmann::json::parse(line);
  }

  const Scratch scratch_;
};

TEST_P(CriticKeepsInvariants, ForWorkersSpeculationAndIdleWork) {
  run("one", 1);
  run("plain", 1, {"actor.early_gradients=false", "speculative.enable=false"});
  run("three", 3);
  run("shared", 2, {"actor.use_distributed_optimizer=true"});
  for (const char* name : {"plain", "three", "shared"}) expect_same(name, "one");
  const nlohmann::json first = metrics("one", 0), last = metrics("one", kCriticSteps - 1);
  if (has_critic()) {
    const auto policy = [&](int step) {
      return file("one", tests::checkpoint_folder(step) + "policy/model.safetensors");
    };
    EXPECT_FALSE(first.contains("actor/pg_loss")) << "trainer.critic_warmup=2";
    EXPECT_EQ(first.at("critic/values/max"), 0);
    EXPECT_TRUE(last.contains("actor/pg_loss"));
    EXPECT_NE(last.at("critic/values/max"), 0);
    EXPECT_NE(policy(1), policy(2));
    EXPECT_NE(file("one", tests::critic_files(1)[0]), file("one", tests::critic_files(2)[0]));
  } else {
    EXPECT_EQ(first.at("rollout/greedy_responses"), 4);
    EXPECT_EQ(first.at("rollout/responses"), 20) << "four prompts of four and a greedy one";
    EXPECT_EQ(std::ranges::count(file("one", "rollouts/000001.jsonl"), '\n'), 16);
  }
  run("grpo", 1, {"algorithm.adv_estimator=grpo", "algorithm.lam=1", "trainer.critic_warmup=0"});
  EXPECT_NE(file("grpo", tests::checkpoint_files(kCriticSteps)[0]),
            file("one", tests::checkpoint_files(kCriticSteps)[0]))
      << "the estimator changes nothing";
}

// As after a kill between two checkpoints, by another number of workers; with an adapter too.
TEST_P(CriticKeepsInvariants, ForAResume) {
  for (const bool has_adapter : {false, true}) {
    const std::vector<std::string> more =
        has_adapter ? tests::with_adapter() : std::vector<std::string>{};
    const std::string whole = has_adapter ? "adapter" : "whole", again = whole + "-again";
    run(whole, 1, more);
    run(again, 1, more);
    for (int step = 2; step <= kCriticSteps; ++step)
      std::filesystem::remove_all(scratch_ / again / tests::checkpoint_folder(step));
    run(again, 2, more);
    expect_same(again, whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Estimators, CriticKeepsInvariants, ::testing::Values("gae", "remax"));

// The critic of a run begins another one; what does not fit is refused.
TEST(CriticFolder, BeginsARunIfItFits) {
  const Scratch scratch;
  const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"trainer.threads=1", "algorithm.adv_estimator=gae",
                                    "critic.optim.lr=1e-3"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(small_run(scratch / name, 1, 1, all), scratch / "log");
  };
  const auto log = [&] { return read_text(scratch / "log"); };
  const auto first_value = [&](const std::string& name) {
    std::istringstream lines(read_text(scratch / name / "metrics.jsonl"));
    std::string line;
    std::getline(lines, line);
    return nlohmann::json::parse(line).at("critic/values/max").get<double>();
  };
  ASSERT_EQ(run("first", {}), 0) << log();
  const std::string critic = scratch / "first" / tests::checkpoint_folder(1) / "critic";
  ASSERT_EQ(run("second", {"critic.model.path=" + critic}), 0) << log();
  EXPECT_EQ(first_value("first"), 0);
  EXPECT_NE(first_value("second"), 0);
  EXPECT_EQ(run("second", {"critic.model.path=" + critic, "trainer.total_training_steps=2",
                           "--override", "critic.optim.lr=1e-4"}),
            0)
      << log();
  EXPECT_EQ(run("other", {"critic.model.path=models/word_problems"}), 2);
  EXPECT_NE(log().find("critic.model.path: models/word_problems has "), std::string::npos) << log();

  // The same tokens and another hidden size.
  EXPECT_EQ(run("large", {"critic.model.path=models/headline"}), 2);
  EXPECT_NE(log().find("models/headline has 8 layers of hidden size 512"), std::string::npos)
      << log();
  EXPECT_EQ(run("missing", {"critic.model.path=nowhere"}), 2);
  EXPECT_NE(log().find("nowhere"), std::string::npos) << log();

  // A damaged checkpoint: its texts are checked too.
  const auto state = scratch / "first" / tests::checkpoint_folder(1) / "state/critic.json";
  std::ofstream(state) << "{}";
  EXPECT_EQ(run("first", {"trainer.total_training_steps=2"}), 2);
  EXPECT_NE(log().find("every checkpoint is broken"), std::string::npos) << log();
}

}  // namespace
}  // namespace tlt
