// Workers that decode and train together, as processes: tokens and weights do not depend on the
// number of groups, on who trains what, on speculation, on the batch, or on a loss and a resume.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/breakpoint.h"
#include "tests/support/small_run.h"

namespace tlt {
namespace {

using ::testing::HasSubstr;
using tests::Program;
using tests::read_text;
using tests::run_program;
using tests::Scratch;
using tests::small_run;

constexpr int kSteps = 2;

std::vector<std::string> train_in(const std::filesystem::path& folder, int workers,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> options = {"rollout.tensor_model_parallel_size=2", "trainer.threads=1",
                                      "data.max_response_length=12", "trainer.timeout_seconds=300"};
  options.insert(options.end(), more.begin(), more.end());
  return small_run(folder, kSteps, workers, options);
}

TEST(TensorParallelTrainTest, GroupsSpeculationAndALossChangeNoBit) {
  const Scratch scratch;
  ASSERT_EQ(run_program(train_in(scratch / "one_group", 2), scratch / "log"), 0)
      << read_text(scratch / "log");
  EXPECT_EQ(tests::sum_of_metric(scratch / "one_group", "training/rollout_probs_diff_max"), 0);
  EXPECT_GT(tests::sum_of_metric(scratch / "one_group", "actor/grad_norm"), 0);

  EXPECT_THAT(read_text(scratch / "log"), HasSubstr("trains the model by all workers of a group"));

  // Each worker trains the whole model, and has half of the optimizer's state too.
  const auto whole = train_in(scratch / "whole", 2, {"actor.use_distributed_optimizer=true"});
  ASSERT_EQ(run_program(whole, scratch / "log"), 0) << read_text(scratch / "log");
  EXPECT_THAT(read_text(scratch / "log"),
              HasSubstr("each worker of a group trains the whole model, "
                        "because of actor.use_distributed_optimizer"));
  tests::expect_same_run(scratch / "whole", scratch / "one_group", kSteps);
  EXPECT_NEAR(tests::sum_of_metric(scratch / "one_group", "train/optimizer_bytes"),
              tests::sum_of_metric(scratch / "whole", "train/optimizer_bytes"),
              0.1 * tests::sum_of_metric(scratch / "whole", "train/optimizer_bytes"));

  // Without early gradients the KV cache is released after the rollouts, not in them.
  const auto two_groups = train_in(scratch / "two_groups", 4,
                                   {"speculative.enable=false", "actor.early_gradients=false"});
  ASSERT_EQ(run_program(two_groups, scratch / "log"), 0) << read_text(scratch / "log");
  tests::expect_same_run(scratch / "two_groups", scratch / "one_group", kSteps);

  // A worker of a group is lost: the run ends, and the same command continues it.
  const auto lost = train_in(scratch / "lost", 2, {"speculative.enable=false"});
  {
    Program program(lost, scratch / "log");
    const tests::Breakpoint second_update({{tests::kUpdate, 2}});
    if (!second_update.can_set()) GTEST_SKIP() << tests::kNoBreakpoint;
    ASSERT_TRUE(second_update.signal_at(tests::wait_for_worker(program.pid(), 1), SIGKILL))
        << program.output();
    EXPECT_EQ(program.wait(), 128 + SIGKILL) << program.output();
    EXPECT_THAT(program.output(), HasSubstr("start the run again with the same command"));
  }
  ASSERT_EQ(run_program(lost, scratch / "log"), 0) << read_text(scratch / "log");
  EXPECT_THAT(read_text(scratch / "log"), HasSubstr("step 2"));
  tests::expect_same_run(scratch / "lost", scratch / "one_group", kSteps);
}

TEST(TensorParallelTrainTest, WorkersThatAreNoWholeGroupsAreRefused) {
  const Scratch scratch;
  EXPECT_EQ(run_program(train_in(scratch / "run", 3), scratch / "log"), 2);
  EXPECT_THAT(read_text(scratch / "log"),
              HasSubstr("rollout.tensor_model_parallel_size is 2, and the run has 3 workers, which "
                        "are not whole groups of 2; start 4 workers"));
  EXPECT_EQ(run_program(train_in(scratch / "run", 1), scratch / "log"), 2);
  EXPECT_THAT(read_text(scratch / "log"), HasSubstr("the run has 1 worker, which"));
  auto four = train_in(scratch / "run", 4, {"rollout.tensor_model_parallel_size=4"});
  EXPECT_EQ(run_program(four, scratch / "log"), 2);
  EXPECT_THAT(read_text(scratch / "log"), HasSubstr("has 4 heads, 2 KV heads"));
  EXPECT_THAT(read_text(scratch / "log"), HasSubstr("give 2"));
}

// Rows of tlt generate with two workers, without what depends on speculation.
std::vector<nlohmann::json> generate(const Scratch& scratch, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"generate",
                                        "--model",
                                        "models/demo",
                                        "--prompts",
                                        "countdown:seed=7,size=4",
                                        "--samples",
                                        "4",
                                        "--max-new-tokens",
                                        "12",
                                        "--threads",
                                        "1",
                                        "--output",
                                        (scratch / "out.jsonl").string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  EXPECT_EQ(run_program(arguments, scratch / "log"), 0) << read_text(scratch / "log");
  std::vector<nlohmann::json> rows;
  std::istringstream lines(read_text(scratch / "out.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    rows.push_back(nlohmann::json::parse(line));
    rows.back().erase("target_forwards");
  }
  EXPECT_EQ(rows.size(), 16u);
  return rows;
}

TEST(TensorParallelGenerateTest, SpeculationAndBatchChangeNoBit) {
  const Scratch scratch;
  const auto plain = generate(scratch, {"--tensor-parallel-size", "2", "--speculation", "off"});
  EXPECT_EQ(generate(scratch, {"--tensor-parallel-size", "2", "--speculation", "suffix",
                               "--max-running", "1"}),
            plain);
  EXPECT_EQ(generate(scratch, {"--tensor-parallel-size", "2", "--speculation", "auto"}), plain);
  // One worker: the same up to rounding, while the tokens are the same.
  const auto alone = generate(scratch, {"--speculation", "off"});
  EXPECT_NE(alone, plain) << "the option has no effect";
  double most = 0;
  for (size_t i = 0; i < std::min(plain.size(), alone.size()); ++i)
    most = std::max(most, std::abs(plain[i]["logprobs"][0].get<double>() -
                                   alone[i]["logprobs"][0].get<double>()));
  EXPECT_LT(most, 0.2);
}

TEST(TensorParallelGenerateTest, BadSizesAreRefused) {
  const Scratch scratch;
  const auto refusal = [&](const std::string& size, const std::string& prompts) {
    EXPECT_EQ(run_program({"generate", "--model", "models/demo", "--prompts", prompts,
                           "--tensor-parallel-size", size},
                          scratch / "log"),
              2);
    return read_text(scratch / "log");
  };
  EXPECT_THAT(refusal("3", "-"), HasSubstr("--tensor-parallel-size is 3; give 1, 2, 4 or 8"));
  EXPECT_THAT(refusal("4", "-"), HasSubstr("give 2"));
  EXPECT_THAT(refusal("2", (scratch / "none.jsonl").string()), HasSubstr("none.jsonl"));
}

}  // namespace
}  // namespace tlt
