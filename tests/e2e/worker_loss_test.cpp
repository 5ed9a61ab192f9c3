// A worker of three is killed (kill -9) in each phase: while it decodes, trains the draft model,
// publishes it, updates the policy, or while a checkpoint is written. The run continues with the
// others (trainer.on_worker_loss=continue, the default) and ends with exit code 0 and with the
// rollouts and weights of an uninterrupted run.
//
// TLT_LOSSES=30 kills 30 times; without it there is one kill per phase.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/support/breakpoint.h"
#include "tests/support/small_run.h"
#include "tests/support/stack_peek.h"

namespace tlt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::Program;
using tests::read_text;
using tests::run_program;
using tests::Scratch;
using tests::worker_of;

constexpr int kLossSteps = 3;

struct Phase {
  const char* name;
  const char* function;  // on the stack of the worker's main thread; null: any
};
constexpr Phase kPhases[] = {
    {"decoding", "tlt::rollout::Engine::step("},
    {"training the draft model", "tlt::drafter_training::IdleTrainer::try_slice("},
    {"publishing the draft model", "tlt::drafter_training::IdleTrainer::publish("},
    {"updating the policy", "tlt::train::Trainer::update("},
    {"at a checkpoint", nullptr}};

std::vector<std::string> losing_run(const std::filesystem::path& folder, int workers) {
  return tests::small_run(
      folder, kLossSteps, workers,
      {tests::kDemoModel, "trainer.threads=1", "trainer.timeout_seconds=100",
       "data.max_response_length=200", "speculative.train.gap_share=0.5",
       "speculative.train.step_tokens=512", "speculative.train.optim.lr=0.004"});
}

class WorkerLossTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!peek_.can_look()) GTEST_SKIP() << "no symbols of the program, or another machine";
    ASSERT_EQ(run_program(losing_run(scratch_ / "whole", 1), scratch_ / "log"), 0)
        << read_text(scratch_ / "log");
  }

  bool kill_now(pid_t worker, size_t phase, const std::filesystem::path& folder) const {
    if (kPhases[phase].function) return peek_.kill_within(worker, phase);
    return std::filesystem::exists(folder / tests::checkpoint_folder(1)) &&
           tests::StackPeek::kill_running(worker);
  }

  // Kills a worker the next time it is in the phase; the run must end as if nothing had happened.
  // False: the phase did not occur.
  bool lose_in(size_t phase, const std::filesystem::path& folder) {
    const int rank = 1 + static_cast<int>(random_() % 2);
    const auto delay = std::chrono::milliseconds(random_() % 700);
    Program program(losing_run(folder, 3), scratch_ / "log");
    pid_t worker = -1;
    bool is_killed = false;
    int code = 0;
    // Before the first rollouts a loss ends the run.
    if (!tests::appears(folder / "timeline.json")) return false;
    std::this_thread::sleep_for(delay);
    while (!program.wait_for(0.001, &code)) {
      if (is_killed) continue;
      if (worker < 0) worker = worker_of(program.pid(), rank);
      is_killed = worker > 0 && kill_now(worker, phase, folder);
    }
    EXPECT_EQ(code, 0) << program.output();
    if (!is_killed) return false;
    tests::expect_same_run(folder, scratch_ / "whole", kLossSteps);
    EXPECT_THAT(program.output(),
                AllOf(HasSubstr(fmt::format("worker {} of 3 (process {}) was killed by signal 9",
                                            rank, worker)),
                      HasSubstr("; the others continued"), Not(HasSubstr("resumes"))));
    return true;
  }

  const Scratch scratch_;
  const tests::StackPeek peek_{[] {
    std::vector<std::string> functions;
    for (const Phase& phase : kPhases)
      functions.push_back(phase.function ? phase.function : "(none)");
    return functions;
  }()};
  std::mt19937 random_{std::getenv("TLT_LOSSES") ? std::random_device()() : 3};
};

TEST_F(WorkerLossTest, TheOthersGoOnWithTheSameResults) {
  const char* asked = std::getenv("TLT_LOSSES");
  const int wanted = asked ? std::atoi(asked) : static_cast<int>(std::size(kPhases));
  for (int round = 0, done = 0; done < wanted; ++round) {
    ASSERT_LT(round, 4 * wanted) << "some phases did not occur";
    const size_t phase = static_cast<size_t>(done) % std::size(kPhases);
    const auto folder = scratch_ / ("lost" + std::to_string(round));
    if (lose_in(phase, folder)) {
      ++done;
      const std::string log = read_text(scratch_ / "log");
      const size_t line = log.find("continuing with");
      std::cout << kPhases[phase].name << ": "
                << (line == log.npos ? "after the last collective"
                                     : log.substr(line, log.find('\n', line) - line))
                << std::endl;
    }
    ASSERT_FALSE(HasFailure()) << kPhases[phase].name << ": " << read_text(scratch_ / "log");
    std::filesystem::remove_all(folder);
  }
}

// The workers that share the optimizer's state cannot continue: a part of it is lost.
TEST_F(WorkerLossTest, AShareOfTheOptimizerIsNotReplaced) {
  const tests::Breakpoint second_update({{tests::kUpdate, 2}});
  std::vector<std::string> arguments = losing_run(scratch_ / "shared", 2);
  arguments.insert(arguments.end() - 2, "actor.use_distributed_optimizer=true");
  Program program(arguments, scratch_ / "log");
  ASSERT_TRUE(second_update.signal_at(tests::wait_for_worker(program.pid(), 1), SIGKILL))
      << program.output();
  int code = 0;
  ASSERT_TRUE(program.wait_for(30, &code)) << program.output();
  EXPECT_EQ(code, 128 + SIGKILL) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("actor.use_distributed_optimizer: a lost worker ends"));
}

}  // namespace
}  // namespace tlt
