// A signal in the middle of a step: the run saves within 20 seconds, and the resumed run ends with
// the rollouts, metrics and weights of an undisturbed one without decoding a finished response
// again. And a worker that hangs ends by itself.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/breakpoint.h"
#include "tests/support/small_run.h"

namespace tlt {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using tests::appears;
using tests::Breakpoint;
using tests::Call;
using tests::kNoBreakpoint;
using tests::kUpdate;
using tests::Program;
using tests::read_text;
using tests::run_program;
using tests::Scratch;
using tests::wait_for_worker;

constexpr int kInterruptSteps = 2;
constexpr double kSaveSeconds = 20;
// Responses of a step: of rollouts that are interrupted, of an update that is, and of
// with_small_updates().
constexpr int kResponses = 512, kUpdateResponses = 128, kFewResponses = 64;
constexpr char kPolicyGradient[] = "tlt::train::HeadLoss::backward(";
// Of the eight of an update of with_small_updates().
constexpr Call kThirdOptimizerStep = {"tlt::train::Optimizer::step(", 3};
// A worker's response of a rollout phase, of 256 or more if two workers decode kResponses.
constexpr Call kTenthResponse = {"tlt::reward::RewardPool::submit(", 10};

// Steps with rollouts of a second, which a small model needs many responses for.
std::vector<std::string> slow_run(const std::filesystem::path& folder, int workers,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> options = {"trainer.threads=1",
                                      "data.train_batch_size=16",
                                      "actor.ppo_mini_batch_size=16",
                                      "rollout.n=32",
                                      "rollout.temperature=1.3",
                                      "data.max_response_length=300",
                                      "rollout.max_num_seqs=1",
                                      "speculative.enable=false",
                                      "trainer.save_freq=100",
                                      "trainer.timeout_seconds=100"};
  options.insert(options.end(), more.begin(), more.end());
  return tests::small_run(folder, kInterruptSteps, workers, options);
}

// The same with rollouts that do not last: all sequences decode at the same time, which changes no
// result.
std::vector<std::string> quick_run(const std::filesystem::path& folder, int workers,
                                   std::vector<std::string> more = {}) {
  more.emplace_back("rollout.max_num_seqs=64");
  return slow_run(folder, workers, more);
}

// The metrics of a run that depend on neither time nor speculation, a line for each step.
std::vector<std::string> metrics_of(const std::filesystem::path& folder) {
  return tests::metrics_of(folder, [](std::string_view name) {
    return name.starts_with("actor/") || name.starts_with("critic/") ||
           name.starts_with("response_length/") || name.starts_with("training/") ||
           name.starts_with("val-");
  });
}

void flip_a_bit(const std::filesystem::path& file) {
  std::string bytes = read_text(file);
  ASSERT_GT(bytes.size(), 100U) << file;
  char& middle = bytes[bytes.size() / 2];
  middle = static_cast<char>(middle ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
}

class InterruptTest : public ::testing::TestWithParam<int> {
 protected:
  // Of the run that is interrupted, and of the one that resumes it.
  int workers() const { return GetParam() * group_; }
  int other_workers() const { return (3 - GetParam()) * group_; }
  void expect_same_as_whole(const std::filesystem::path& run) const {
    tests::expect_same_files(run, scratch_ / "whole", tests::checkpoint_files(kInterruptSteps));
    for (const char* rollouts : {"rollouts/000001.jsonl", "rollouts/000002.jsonl"})
      tests::expect_same_files(run, scratch_ / "whole", {rollouts});
    EXPECT_EQ(metrics_of(run), metrics_of(scratch_ / "whole"));
    EXPECT_FALSE(std::filesystem::exists(run / "unfinished_step"));
  }
  void run_whole(const std::vector<std::string>& more = {}) const {
    ASSERT_EQ(run_program(quick_run(scratch_ / "whole", group_, more), scratch_ / "log"), 0)
        << read_text(scratch_ / "log");
  }
  // Ends with this signal's exit code within the bound.
  void expect_interrupted(Program& program, int signal) const {
    int code = 0;
    ASSERT_TRUE(program.wait_for(kSaveSeconds, &code)) << program.output();
    ASSERT_EQ(code, 128 + signal) << program.output();
    EXPECT_THAT(program.output(), HasSubstr("the same command resumes from there"));
  }
  // The kept responses of the last line that tells them: finished, unfinished.
  static std::pair<int, int> kept_in(const std::string& log) {
    std::pair<int, int> kept = {-1, -1};
    const std::regex line(
        "step \\d+: (\\d+) of \\d+ responses are from before the interruption, and (\\d+) "
        "continue");
    for (std::sregex_iterator it(log.begin(), log.end(), line), end; it != end; ++it)
      kept = {std::stoi((*it)[1]), std::stoi((*it)[2])};
    return kept;
  }

  // Ends the program by a signal to its first worker, which tells the others, at this moment.
  void interrupt_at(const Breakpoint& moment, Program& program, int workers,
                    int signal = SIGTERM) const {
    const pid_t worker = workers == 1 ? program.pid() : wait_for_worker(program.pid(), 0);
    ASSERT_GT(worker, 0) << program.output();
    ASSERT_TRUE(moment.signal_at(worker, signal)) << program.output();
    expect_interrupted(program, signal);
  }
  // Starts the run, and ends it in the rollouts of its second step.
  void interrupt_rollouts(const std::vector<std::string>& more = {}) const {
    const Breakpoint moment({{kUpdate}, kTenthResponse});
    if (!moment.can_set()) GTEST_SKIP() << kNoBreakpoint;
    const auto run = scratch_ / "run";
    Program program(slow_run(run, GetParam(), more), scratch_ / "log");
    ASSERT_NO_FATAL_FAILURE(interrupt_at(moment, program, GetParam()));
    EXPECT_TRUE(std::filesystem::exists(run / "unfinished_step"));
    EXPECT_TRUE(std::filesystem::exists(run / tests::checkpoint_folder(1)));
    EXPECT_FALSE(std::filesystem::exists(run / "rollouts/000002.jsonl")) << "the step was done";
  }

  void interrupt_update(std::vector<std::string> more) const {
    const Breakpoint update({{kUpdate}});
    if (!update.can_set()) GTEST_SKIP() << kNoBreakpoint;
    more.emplace_back("rollout.n=8");
    run_whole(more);
    const auto run = scratch_ / "run";
    {
      Program program(quick_run(run, GetParam(), more), scratch_ / "log");
      ASSERT_NO_FATAL_FAILURE(interrupt_at(update, program, GetParam()));
      EXPECT_FALSE(std::filesystem::exists(run / "rollouts/000001.jsonl")) << "the step was done";
    }
    ASSERT_EQ(run_program(quick_run(run, 3 - GetParam(), more), scratch_ / "log"), 0)
        << read_text(scratch_ / "log");
    EXPECT_EQ(kept_in(read_text(scratch_ / "log")), std::pair(kUpdateResponses, 0));
    expect_same_as_whole(run);
  }

  // Updates of many optimizer steps, with few and short responses.
  static std::vector<std::string> with_small_updates(std::vector<std::string> more) {
    more.insert(more.end(), {"rollout.n=8", "actor.ppo_mini_batch_size=2", "actor.ppo_epochs=2",
                             "data.train_batch_size=8", "data.max_response_length=100"});
    return more;
  }

  // Starts the run and ends it by SIGTERM in the first update, at this moment.
  void stop_within_update(const Breakpoint& moment, const std::filesystem::path& run,
                          const std::vector<std::string>& more) const {
    Program program(quick_run(run, workers(), with_small_updates(more)), scratch_ / "log");
    ASSERT_NO_FATAL_FAILURE(interrupt_at(moment, program, workers()));
    EXPECT_FALSE(std::filesystem::exists(run / "rollouts/000001.jsonl")) << "the step was done";
    EXPECT_TRUE(std::filesystem::exists(run / "checkpoints/unfinished_update/MANIFEST.json"));
    EXPECT_FALSE(std::filesystem::exists(run / "checkpoints/latest")) << "no step is whole";
  }

  void interrupt_within_update(const std::vector<std::string>& more,
                               const Call& at = kThirdOptimizerStep) const {
    const Breakpoint moment({at});
    if (!moment.can_set()) GTEST_SKIP() << kNoBreakpoint;
    run_whole(with_small_updates(more));
    const auto run = scratch_ / "run";
    ASSERT_NO_FATAL_FAILURE(stop_within_update(moment, run, more));
    const std::string metrics = read_text(run / "metrics.jsonl");  // of a validation before step 1
    ASSERT_EQ(
        run_program(quick_run(run, other_workers(), with_small_updates(more)), scratch_ / "log"), 0)
        << read_text(scratch_ / "log");
    EXPECT_TRUE(read_text(run / "metrics.jsonl").starts_with(metrics)) << metrics;
    EXPECT_THAT(read_text(scratch_ / "log"), HasSubstr("within the update after step 0"));
    EXPECT_EQ(kept_in(read_text(scratch_ / "log")), std::pair(batch_responses_, 0));
    expect_same_as_whole(run);
    EXPECT_FALSE(std::filesystem::exists(run / "checkpoints/unfinished_update"));
  }

  const Scratch scratch_;
  int group_ = 1;                        // workers that decode and train the model together
  int batch_responses_ = kFewResponses;  // of a generation batch of with_small_updates()
};

// The second step is interrupted twice, the second time by one worker.
TEST_P(InterruptTest, InTheRolloutsKeepsTheResponses) {
  run_whole();
  const auto run = scratch_ / "run";
  ASSERT_NO_FATAL_FAILURE(interrupt_rollouts());
  if (IsSkipped()) return;
  {
    Program program(slow_run(run, 1), scratch_ / "log");
    ASSERT_NO_FATAL_FAILURE(
        interrupt_at(Breakpoint({kTenthResponse}), program, /*workers=*/1, SIGINT));
    EXPECT_FALSE(std::filesystem::exists(run / "rollouts/000002.jsonl")) << "the step was done";
  }
  const auto before = kept_in(read_text(scratch_ / "log"));
  EXPECT_GT(before.first, 0);
  EXPECT_GT(before.second, 0);
  ASSERT_EQ(run_program(quick_run(run, 3 - GetParam()), scratch_ / "log"), 0)
      << read_text(scratch_ / "log");
  const auto [finished, unfinished] = kept_in(read_text(scratch_ / "log"));
  EXPECT_GT(finished, before.first);
  EXPECT_GT(unfinished, 0);
  EXPECT_LT(finished, kResponses);
  expect_same_as_whole(run);
}

// All responses are there when the update is abandoned: none is decoded again. A critic is updated
// before the policy.
TEST_P(InterruptTest, InTheUpdateKeepsAllResponses) {
  interrupt_update({"actor.early_gradients=false"});
}

TEST_P(InterruptTest, InTheUpdateOfACriticKeepsAllResponses) {
  interrupt_update({"algorithm.adv_estimator=gae", "data.max_response_length=100"});
  if (IsSkipped()) return;
  tests::expect_same_files(scratch_ / "run", scratch_ / "whole",
                           tests::critic_files(kInterruptSteps));
}

// After some of the update's optimizer steps. The checkpoint within the step has what they have done:
// the resumed run neither decodes nor repeats one of them.
TEST_P(InterruptTest, AfterAnOptimizerStepKeepsTheUpdate) { interrupt_within_update({}); }

// The critic's values of the responses are those from before its update.
TEST_P(InterruptTest, AfterAnOptimizerStepOfACriticKeepsTheUpdate) {
  interrupt_within_update({"algorithm.adv_estimator=gae"});
  if (IsSkipped()) return;
  tests::expect_same_files(scratch_ / "run", scratch_ / "whole",
                           tests::critic_files(kInterruptSteps));
}

// All optimizer steps of the critic are done, and none of the policy.
TEST_P(InterruptTest, AfterTheCriticsUpdateOnlyThePolicyIsUpdated) {
  interrupt_within_update({"algorithm.adv_estimator=gae"}, {kPolicyGradient});
  if (IsSkipped()) return;
  tests::expect_same_files(scratch_ / "run", scratch_ / "whole",
                           tests::critic_files(kInterruptSteps));
}

// The validation before the first step is that of the weights before it: it is not done again.
TEST_P(InterruptTest, AfterAnOptimizerStepTheFirstValidationStays) {
  interrupt_within_update(
      {"trainer.val_before_train=true", "data.val_files=[\"countdown:seed=7,size=4\"]"});
  if (IsSkipped()) return;
  tests::expect_same_files(scratch_ / "run", scratch_ / "whole", {"validation/000000.jsonl"});
  EXPECT_EQ(metrics_of(scratch_ / "run").size(), size_t{kInterruptSteps + 1});
}

// Master weights and moments of A and B, of which each worker has a part.
TEST_P(InterruptTest, AfterAnOptimizerStepOfAnAdapterKeepsTheUpdate) {
  std::vector<std::string> more = tests::with_adapter();
  more.emplace_back("actor.use_distributed_optimizer=true");
  interrupt_within_update(more);
  if (IsSkipped()) return;
  tests::expect_same_files(scratch_ / "run", scratch_ / "whole",
                           {tests::adapter_file(kInterruptSteps)});
}

// The checkpoint within the step has the responses of all its generation batches.
TEST_P(InterruptTest, AfterAnOptimizerStepOfDynamicSamplingKeepsTheUpdate) {
  batch_responses_ = 3 * 8;
  interrupt_within_update(tests::with_dynamic_sampling());
}

// Each worker of a group has a part of the gradients and of the optimizer.
TEST_P(InterruptTest, AfterAnOptimizerStepOfAGroupKeepsTheUpdate) {
  group_ = 2;
  interrupt_within_update({"rollout.tensor_model_parallel_size=2"});
}

// Twice after further optimizer steps, then before one: the checkpoint within the step stays, and
// none of a whole step has its weights.
TEST_P(InterruptTest, UpdateThatIsInterruptedAgainContinues) {
  const Breakpoint step({kThirdOptimizerStep});
  if (!step.can_set()) GTEST_SKIP() << kNoBreakpoint;
  run_whole(with_small_updates({}));
  const auto run = scratch_ / "run";
  for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(stop_within_update(step, run, {}));
  {
    Program program(quick_run(run, 1, with_small_updates({})), scratch_ / "log");
    ASSERT_NO_FATAL_FAILURE(interrupt_at(Breakpoint({{kPolicyGradient}}), program, /*workers=*/1));
  }
  EXPECT_TRUE(std::filesystem::exists(run / "checkpoints/unfinished_update/MANIFEST.json"));
  EXPECT_FALSE(std::filesystem::exists(run / "checkpoints/latest")) << "no step is whole";
  ASSERT_EQ(run_program(quick_run(run, 3 - GetParam(), with_small_updates({})), scratch_ / "log"),
            0)
      << read_text(scratch_ / "log");
  expect_same_as_whole(run);
}

// Only the same options continue an update; with others the run begins its last whole step again.
TEST_P(InterruptTest, UpdateOfOtherOptionsIsNotContinued) {
  const Breakpoint step({kThirdOptimizerStep});
  if (!step.can_set()) GTEST_SKIP() << kNoBreakpoint;
  const auto run = scratch_ / "run";
  ASSERT_NO_FATAL_FAILURE(stop_within_update(step, run, {}));
  ASSERT_EQ(
      run_program(quick_run(run, 1, with_small_updates({"--override", "actor.optim.lr=1e-5"})),
                  scratch_ / "log"),
      0)
      << read_text(scratch_ / "log");
  EXPECT_THAT(read_text(scratch_ / "log"),
              HasSubstr("unfinished_update is not used (it is of other options); resuming from the "
                        "last whole step"));
  EXPECT_FALSE(std::filesystem::exists(run / "checkpoints/unfinished_update"));
}

// Of a checkpoint within a step of which a file is damaged, nothing is used.
TEST_P(InterruptTest, DamagedUpdateIsNotContinued) {
  const Breakpoint step({kThirdOptimizerStep});
  if (!step.can_set()) GTEST_SKIP() << kNoBreakpoint;
  run_whole(with_small_updates({}));
  for (const std::string file : {"state/unfinished_step", "state/update.bin"}) {
    const auto run = scratch_ / "run";
    ASSERT_NO_FATAL_FAILURE(stop_within_update(step, run, {}));
    flip_a_bit(run / "checkpoints/unfinished_update" / file);
    ASSERT_EQ(run_program(quick_run(run, 3 - GetParam(), with_small_updates({})), scratch_ / "log"),
              0)
        << read_text(scratch_ / "log");
    EXPECT_THAT(read_text(scratch_ / "log"),
                HasSubstr("unfinished_update is not used (" + file +
                          " has another checksum); resuming from the last whole step"));
    expect_same_as_whole(run);
    std::filesystem::remove_all(run);
  }
}

TEST_P(InterruptTest, GreedyResponsesAreKept) {
  const std::vector<std::string> more = {"algorithm.adv_estimator=remax"};
  run_whole(more);
  const auto run = scratch_ / "run";
  ASSERT_NO_FATAL_FAILURE(interrupt_rollouts(more));
  if (IsSkipped()) return;
  ASSERT_EQ(run_program(quick_run(run, 3 - GetParam(), more), scratch_ / "log"), 0)
      << read_text(scratch_ / "log");
  EXPECT_GE(kept_in(read_text(scratch_ / "log")).first, 0);
  expect_same_as_whole(run);
}

// Scores that are not there after some seconds are computed after the resume.
TEST_P(InterruptTest, WhileItWaitsForScores) {
  const auto slow_reward = [](const std::string& wait) {
    return std::vector<std::string>{
        "rollout.n=4", "reward.functions=[\"command\"]", "reward.threads=1",
        "reward.timeout_seconds=100",
        "reward.command=while read -r line; do rest=${line#*,}; " + wait + " echo ${#rest}; done"};
  };
  // An option that changes no result of the run, but the command does: so a file decides.
  const std::string flag = scratch_ / "slow";
  const auto options =
      slow_reward("while [ -e " + flag + " ]; do : > " + flag + ".waits; sleep 0.1; done;");
  run_whole(options);
  const auto run = scratch_ / "run";
  {
    Program program(slow_run(run, GetParam(), options), scratch_ / "log");
    ASSERT_TRUE(appears(run / "options.toml")) << program.output();
    std::ofstream(flag) << "x";  // after the start, which waits for an answer
    ASSERT_TRUE(appears(flag + ".waits")) << program.output();
    program.send(SIGTERM);
    expect_interrupted(program, SIGTERM);
  }
  std::filesystem::remove(flag);
  ASSERT_EQ(run_program(quick_run(run, 1, options), scratch_ / "log"), 0)
      << read_text(scratch_ / "log");
  EXPECT_GT(kept_in(read_text(scratch_ / "log")).first, 0);
  expect_same_as_whole(run);
}

TEST_P(InterruptTest, DynamicSamplingKeepsItsGenerationBatches) {
  run_whole(tests::with_dynamic_sampling());
  const auto run = scratch_ / "run";
  ASSERT_NO_FATAL_FAILURE(interrupt_rollouts(tests::with_dynamic_sampling()));
  if (IsSkipped()) return;
  ASSERT_EQ(run_program(quick_run(run, 1, tests::with_dynamic_sampling()), scratch_ / "log"), 0)
      << read_text(scratch_ / "log");
  EXPECT_GE(kept_in(read_text(scratch_ / "log")).first, 0);
  expect_same_as_whole(run);
}

// What was kept is only saved work: it is never used if it does not fit.
TEST_P(InterruptTest, DamagedRolloutsAreSkipped) {
  run_whole();
  const auto run = scratch_ / "run", file = run / "unfinished_step";
  ASSERT_NO_FATAL_FAILURE(interrupt_rollouts());
  if (IsSkipped()) return;
  ASSERT_GT(std::filesystem::file_size(file), 1000U);
  flip_a_bit(file);
  ASSERT_EQ(run_program(quick_run(run, 1), scratch_ / "log"), 0) << read_text(scratch_ / "log");
  EXPECT_THAT(read_text(scratch_ / "log"),
              HasSubstr("unfinished_step is skipped, and its responses are decoded again: it has "
                        "another checksum\n"));
  tests::expect_same_files(run, scratch_ / "whole", tests::checkpoint_files(kInterruptSteps));
}

INSTANTIATE_TEST_SUITE_P(Workers, InterruptTest, ::testing::Values(1, 2));

// A debugger stops the main thread of a worker; its other threads still send heartbeats. The worker
// ends by itself, so the other one is not kept: it continues, or without rank 0 the run ends and is
// resumable.
TEST(WatchdogRunTest, WorkerWhoseMainThreadHangsEnds) {
  const Breakpoint in_the_rollouts({{kUpdate}, kTenthResponse});
  if (!in_the_rollouts.can_set()) GTEST_SKIP() << kNoBreakpoint;
  const Scratch scratch;
  const std::vector<std::string> quick = {"trainer.timeout_seconds=5"};
  ASSERT_EQ(run_program(quick_run(scratch / "whole", 1), scratch / "log"), 0)
      << read_text(scratch / "log");
  for (const int rank : {0, 1}) {
    const auto run = scratch / ("run" + std::to_string(rank));
    Program program(slow_run(run, 2, quick), scratch / "log");
    const pid_t worker = wait_for_worker(program.pid(), rank);
    pid_t ended = 0;
    EXPECT_TRUE(in_the_rollouts.at(worker, [&] {
      int status = 0;
      for (int i = 0; i < 3000 && ended == 0; ++i) {
        ended = waitpid(worker, &status, __WALL | WNOHANG);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    })) << program.output();
    ASSERT_EQ(ended, worker) << program.output();  // its parent is told only afterwards
    int code = 0;
    ASSERT_TRUE(program.wait_for(15, &code)) << program.output();
    if (rank == 0)
      EXPECT_THAT(code, AnyOf(1, 3)) << program.output();
    else
      EXPECT_EQ(code, 0) << program.output();
    EXPECT_THAT(program.output(),
                AllOf(HasSubstr("no progress for 5.5 s (1.1 * trainer.timeout_seconds)"),
                      HasSubstr("is stopped by a debugger (ptrace): its stack cannot be read")));
    ASSERT_EQ(run_program(quick_run(run, 1), scratch / "log"), 0) << read_text(scratch / "log");
    tests::expect_same_files(run, scratch / "whole", tests::checkpoint_files(kInterruptSteps));
  }
}

}  // namespace
}  // namespace tlt
