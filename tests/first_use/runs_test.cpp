// Start, restart, failure and interruption of a run (B2, B4, B5, B11, B17, B18).
//
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "tests/first_use/support.h"
#include "tests/support/small_run.h"

namespace tlt::first_use {
namespace {

namespace fs = std::filesystem;
using tests::read_text;
using tests::small_run;

class RunsTest : public ::testing::Test {
 protected:
  fs::path run() const { return scratch_ / "run"; }
  // A small run of two steps with a checkpoint per step.
  std::vector<std::string> words(int steps, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), "trainer.threads=1");
    return small_run(run(), steps, /*workers=*/1, more);
  }
  int run_all(int steps, std::vector<std::string> more = {}) const {
    return tests::run_program(words(steps, std::move(more)), log());
  }
  fs::path log() const { return scratch_ / "log"; }
  std::string output() const { return read_text(log()); }

  const tests::Scratch scratch_;
};

TEST_F(RunsTest, ResumeModeDisableMovesTheOldRunAside) {  // B2
  ASSERT_EQ(run_all(4, {"trainer.max_ckpt_to_keep=2", "actor.optim.lr=1e-3"}), 0) << output();
  const std::string old = read_text(run() / "checkpoints/step_000004/MANIFEST.json");
  ASSERT_EQ(run_all(2, {"trainer.max_ckpt_to_keep=2", "trainer.resume_mode=disable"}), 0)
      << output();
  EXPECT_THAT(output(), HasSubstr("run.1"));
  EXPECT_EQ(read_text(scratch_ / "run.1" / "checkpoints/step_000004/MANIFEST.json"), old);
  EXPECT_EQ(read_text(run() / "checkpoints/latest"), "step_000002\n");
  EXPECT_TRUE(fs::exists(run() / "checkpoints/step_000002/policy/model.safetensors"));
  EXPECT_FALSE(fs::exists(run() / "checkpoints/step_000004"));
  EXPECT_FALSE(fs::exists(run() / "rollouts/000003.jsonl"));
  ASSERT_EQ(run_all(3, {"trainer.max_ckpt_to_keep=2"}), 0) << output();
  EXPECT_THAT(output(), HasSubstr("step_000002, step 2"));
}

TEST_F(RunsTest, FailedStartLeavesTheOldRunInPlace) {
  ASSERT_EQ(run_all(1), 0) << output();
  ASSERT_EQ(run_all(1, {"trainer.resume_mode=disable", "data.train_files=none.jsonl"}), 2);
  EXPECT_TRUE(fs::exists(run() / "checkpoints/step_000001"));
  EXPECT_FALSE(fs::exists(scratch_ / "run.1"));
}

TEST_F(RunsTest, FailedStartLeavesNoFolder) {  // B17
  for (const char* fault : {"data.train_files=none.jsonl", "model.path=none", "reward.regex=x"}) {
    EXPECT_EQ(run_all(1, {fault}), 2) << output();
    EXPECT_FALSE(fs::exists(run())) << fault;
  }
}

TEST_F(RunsTest, TooFewRowsForABatchIsAnError) {  // B4
  const std::string few = "data.train_files=[\"countdown:seed=1,size=64\"]";
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{few, "data.train_batch_size=65"},
        {few, "data.train_batch_size=65", "trainer.total_training_steps=0"}}) {
    EXPECT_EQ(run_all(1, more), 2) << output();
    EXPECT_THAT(output(), HasSubstr("data.train_files has 64 rows, fewer than "
                                    "data.train_batch_size=65; set data.train_batch_size to at "
                                    "most 64"));
  }
  const Ended sft =
      run_program({"sft", "recipes/demo_warmup_1.toml", few, "data.train_batch_size=65",
                   "trainer.default_local_dir=" + run().string()});
  expect_refusal(sft, HasSubstr("set data.train_batch_size to at most 64"));
  EXPECT_FALSE(fs::exists(run()));
}

TEST_F(RunsTest, StepWithoutAScoreEndsTheRun) {  // B5
  const std::vector<std::string> broken = {"reward.functions=[\"command\"]",
                                           "reward.command=read line; echo no >&2; exit 1"};
  EXPECT_EQ(run_all(2, broken), 1) << output();
  EXPECT_THAT(output(), AllOf(HasSubstr("responses after step 0 has a score"),
                              HasSubstr("ended with status 1"), HasSubstr("repair the reward")));
  EXPECT_FALSE(fs::exists(run() / "checkpoints/latest"));
}

TEST_F(RunsTest, FinishedRunReportsThatItIsComplete) {  // B11
  ASSERT_EQ(run_all(1), 0) << output();
  ASSERT_EQ(run_all(1), 0) << output();
  EXPECT_THAT(output(), AllOf(HasSubstr("complete (1 of 1 steps)"),
                              HasSubstr("raise trainer.total_training_steps"),
                              Not(HasSubstr("steps 2 to 1"))));
}

TEST_F(RunsTest, InterruptedRunReportsItAndFails) {  // B18
  for (const int signal : {SIGINT, SIGTERM})
    for (const int workers : {1, 2}) {
      fs::remove_all(run());
      tests::Program program(
          small_run(run(), 400, workers, {"trainer.threads=1", "trainer.save_freq=400"}), log());
      ASSERT_TRUE(tests::appears(run() / "rollouts/000001.jsonl")) << output();
      program.send(signal);
      int code = 0;
      ASSERT_TRUE(program.wait_for(30, &code)) << output();
      EXPECT_EQ(code, 128 + signal) << output();
      EXPECT_THAT(output(), AllOf(HasSubstr("interrupted: the run saves and ends"),
                                  HasSubstr("the same command resumes from there")));
    }
}

// Rank 0 summarizes the run after the others have ended. A FIFO in place of summary.txt makes that
// take longer than a worker of this run may be silent.
TEST_F(RunsTest, ALongSummaryLosesNoWorker) {
  fs::create_directories(run());
  const std::string summary = run() / "summary.txt";
  ASSERT_EQ(::mkfifo(summary.c_str(), 0600), 0);
  tests::Program program(
      small_run(run(), 2, /*workers=*/2, {"trainer.threads=1", "trainer.timeout_seconds=100"}),
      log());
  ASSERT_TRUE(tests::appears(run() / "example_prompt.jsonl")) << output();  // then the summary
  int code = -1;
  ASSERT_FALSE(program.wait_for(12, &code)) << "it did not wait for a reader: " << output();
  EXPECT_THAT(read_text(summary), HasSubstr("Run summary"));
  ASSERT_TRUE(program.wait_for(30, &code)) << output();
  EXPECT_EQ(code, 0) << output();
  EXPECT_THAT(output(), Not(HasSubstr("lost")));
}

}  // namespace
}  // namespace tlt::first_use
