// A worker is killed (kill -9) in each state: while it decodes, trains the draft model, publishes
// it, updates, validates or writes a checkpoint, in `tlt train` with trainer.on_worker_loss=stop
// and in `tlt sft`. The run ends with one sentence; the same command, with any number of workers,
// ends with the weights of an uninterrupted run. In every other round the workers share the
// optimizer state before the kill, in the others after it.
//
// TLT_KILLS=30 kills 30 times, at random moments; without it there is one kill per state.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <random>

#include "tests/support/small_run.h"
#include "tests/support/stack_peek.h"

namespace tlt {
namespace {

using tests::Program;
using tests::read_text;
using tests::run_program;
using tests::Scratch;
using tests::small_run;
using tests::worker_of;

constexpr int kKillSteps = 3;

struct State {
  const char* name;
  // A function on the stack of the worker's main thread; empty: none, and the delay alone decides
  // when the whole program is killed.
  const char* function;
  bool is_of_first_worker = false;
};
// Another thread writes checkpoints, so this state is recognized by the files, not by the stack.
constexpr const char* kSave = "tlt::train::CheckpointWriter::save(";

// A command under test.
struct TestedCommand {
  const char* command;
  std::vector<State> states;
  std::vector<std::string> (*run_in)(const std::filesystem::path& folder, int workers,
                                     bool shares_optimizer);
  void (*expect_same)(const std::filesystem::path& got, const std::filesystem::path& want,
                      int steps);
};

// Few groups of long responses, so that one worker becomes idle before the other.
std::vector<std::string> train_in(const std::filesystem::path& folder, int workers,
                                  bool shares_optimizer) {
  return small_run(
      folder, kKillSteps, workers,
      {tests::kDemoModel, fmt::format("actor.use_distributed_optimizer={}", shares_optimizer),
       "trainer.threads=1", "trainer.timeout_seconds=20", "trainer.on_worker_loss=stop",
       "data.max_response_length=200", "speculative.train.gap_share=0.5",
       "speculative.train.step_tokens=512", "speculative.train.optim.lr=0.004"});
}

std::vector<std::string> sft_in(const std::filesystem::path& folder, int workers,
                                bool shares_optimizer) {
  return tests::small_sft(
      folder, kKillSteps, workers,
      {tests::kDemoModel, fmt::format("actor.use_distributed_optimizer={}", shares_optimizer),
       "trainer.timeout_seconds=20"});
}

const TestedCommand kTrain = {
    "train",
    {{"decoding", "tlt::rollout::Engine::step("},
     {"training the draft model", "tlt::drafter_training::IdleTrainer::try_slice("},
     {"publishing the draft model", "tlt::drafter_training::IdleTrainer::publish("},
     {"updating the policy", "tlt::train::Trainer::update("},
     {"writing a checkpoint", kSave}},
    train_in,
    tests::expect_same_run};
const TestedCommand kSft = {"sft",
                            {{"at any moment", ""},
                             {"updating the policy", "tlt::train::Trainer::update("},
                             {"validating", "tlt::train::score_samples("},
                             {"writing a checkpoint", kSave},
                             {"writing the policy", "tlt::run::PolicyFiles::write(", true}},
                            sft_in,
                            tests::expect_same_sft};

bool is_writing_checkpoint(const std::filesystem::path& run) {
  std::error_code none_yet;
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints", none_yet))
    if (entry.path().extension() == ".writing") return true;
  return false;
}

class WorkerKillTest : public ::testing::TestWithParam<const TestedCommand*> {
 protected:
  void SetUp() override {
    if (!peek_.can_look()) GTEST_SKIP() << "no symbols of the program, or another machine";
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(run_program(command_.run_in(scratch_ / "whole", 1, false), scratch_ / "log"), 0)
        << read_text(scratch_ / "log");
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    whole_milliseconds_ = static_cast<unsigned>(time.count()) + 1;
  }

  // Kills a worker the next time it is in the state after the delay. False: the run ended before.
  bool kill_in(size_t state, int delay_milliseconds, const std::filesystem::path& folder,
               bool shares_optimizer) {
    const int workers = 2 + static_cast<int>(random_() % 2);
    const int rank = command_.states[state].is_of_first_worker
                         ? 0
                         : static_cast<int>(random_() % static_cast<unsigned>(workers));
    Program program(command_.run_in(folder, workers, shares_optimizer), scratch_ / "log");
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_milliseconds));
    pid_t worker = -1;
    int code = 0;
    while (!program.wait_for(0.001, &code)) {
      if (*command_.states[state].function == 0) return program.kill_all(), true;
      if (worker < 0) worker = worker_of(program.pid(), rank);
      if (worker < 0 || !kill_now(worker, state, folder)) continue;
      code = program.wait();
      EXPECT_EQ(code, 128 + SIGKILL) << program.output();
      return true;
    }
    EXPECT_EQ(code, 0) << program.output();
    return false;
  }

  bool kill_now(pid_t worker, size_t state, const std::filesystem::path& folder) const {
    if (command_.states[state].function != kSave) return peek_.kill_within(worker, state);
    return is_writing_checkpoint(folder) && tests::StackPeek::kill_running(worker);
  }

  const TestedCommand& command_ = *GetParam();
  const Scratch scratch_;
  const tests::StackPeek peek_{[this] {
    std::vector<std::string> functions;
    for (const State& state : command_.states)
      functions.push_back(*state.function ? state.function : "(none)");
    return functions;
  }()};
  unsigned whole_milliseconds_ = 1;  // of an uninterrupted run
  std::mt19937 random_{std::getenv("TLT_KILLS") ? std::random_device()() : 3};
};

TEST_P(WorkerKillTest, KilledInAnyStateIsResumable) {
  const char* asked = std::getenv("TLT_KILLS");
  const std::vector<State>& states = command_.states;
  const int wanted = asked ? std::atoi(asked) : static_cast<int>(states.size());
  std::map<std::string, int> kills;
  for (int round = 0, done = 0; done < wanted; ++round) {
    ASSERT_LT(round, 3 * wanted + 3) << "some states did not occur";
    const size_t state = static_cast<size_t>(done) % states.size();
    const auto folder = scratch_ / ("killed" + std::to_string(round));
    const int delay = round % 3 == 2 ? 0 : static_cast<int>(random_() % whole_milliseconds_);
    const bool shares = round % 2 == 0;  // before the kill; the opposite after it
    if (kill_in(state, delay, folder, shares)) ++kills[states[state].name], ++done;
    const int workers = 1 + static_cast<int>(random_() % 3);
    ASSERT_EQ(run_program(command_.run_in(folder, workers, !shares), scratch_ / "log"), 0)
        << states[state].name << ": " << read_text(scratch_ / "log");
    command_.expect_same(folder, scratch_ / "whole", kKillSteps);
    ASSERT_FALSE(HasFailure()) << "killed " << states[state].name << ", resumed on " << workers;
    std::filesystem::remove_all(folder);
  }
  for (const State& state : states) {
    EXPECT_GT(kills[state.name], 0) << state.name;
    if (asked)
      std::cout << command_.command << ": " << kills[state.name] << " times " << state.name
                << std::endl;
  }
}

// A parent, and a worker whose end takes some milliseconds, because of its memory.
struct EndingWorker {
  pid_t parent = -1;
  pid_t worker = -1;

  static EndingWorker start() {
    int pids[2];
    TLT_CHECK(pipe(pids) == 0, "no pipe");
    EndingWorker started{.parent = fork()};
    if (started.parent == 0) {
      const pid_t worker = fork();
      if (worker == 0) {
        const std::string memory(size_t{64} << 20, 'x');
        const pid_t self = getpid();
        const bool is_told = write(pids[1], &self, sizeof self) == sizeof self;
        usleep(2000);
        _exit(is_told && memory.back() == 'x' ? 0 : 1);
      }
      int status = 0;
      waitpid(worker, &status, 0);
      _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    }
    TLT_CHECK(read(pids[0], &started.worker, sizeof(pid_t)) == sizeof(pid_t), "no worker");
    close(pids[0]), close(pids[1]);
    return started;
  }

  int parent_exit_code() const {
    int status = 0;
    waitpid(parent, &status, 0);
    return WEXITSTATUS(status);
  }
};

// One that is ending keeps its exit code, so no signal may count as its death.
TEST(StackPeekTest, OnlyARunningProcessIsKilled) {
  int killed = 0, ended = 0;
  for (unsigned round = 0; round < 50; ++round) {
    const EndingWorker ending = EndingWorker::start();
    usleep(200 * round);
    const bool is_killed = tests::StackPeek::kill_running(ending.worker);
    ++(is_killed ? killed : ended);
    EXPECT_EQ(ending.parent_exit_code(), is_killed ? 128 + SIGKILL : 0) << "round " << round;
  }
  EXPECT_GT(killed, 0);
  EXPECT_GT(ended, 0);
}

INSTANTIATE_TEST_SUITE_P(Commands, WorkerKillTest, ::testing::Values(&kTrain, &kSft),
                         [](const auto& info) { return std::string(info.param->command); });

}  // namespace
}  // namespace tlt
