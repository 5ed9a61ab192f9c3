// SPDX-License-Identifier: Apache-2.0
#include "cluster/spawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt::cluster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class SpawnTest : public ::testing::Test {
 protected:
  SpawnTest() { EXPECT_EQ(setenv("FOLDER", folder_.path().c_str(), 1), 0); }

  // Every worker is a shell that runs `script` in $FOLDER.
  SpawnResult spawn(int count, const std::string& script, double grace_seconds = 5) {
    return spawn_workers(count, {"sh", "-c", "cd $FOLDER; " + script},
                         {.grace_seconds = grace_seconds, .program = "/bin/sh"});
  }

  // spawn() in a process of its own, whose exit code is the result's.
  pid_t spawn_in_child(int count, const std::string& script) {
    const pid_t pid = fork();
    TLT_CHECK(pid >= 0, "no process");  // kill(-1, …) would reach every process there is
    if (pid == 0) _exit(spawn(count, script).exit_code);
    return pid;
  }

  std::string text_of(const std::string& file) const {
    std::ifstream in(folder_ / file);
    std::string line;
    std::getline(in, line);
    return line;
  }

  void wait_for(const std::string& file) const {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (text_of(file).empty() && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_FALSE(text_of(file).empty()) << file;
  }

  TestFolder folder_;
};

void expect_no_child_left() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(SpawnTest, WorkersGetTheirRankAndRankZeroTheSocket) {
  const SpawnResult result = spawn(
      3,
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $(test -e "
      "/proc/$$/fd/${TLT_LISTEN_FD:-none} && echo socket) > $RANK; echo $MASTER_PORT > port$RANK");
  EXPECT_EQ(result.exit_code, 0) << result.message;
  EXPECT_EQ(result.message, "");
  EXPECT_EQ(text_of("0"), "0 3 0 3 127.0.0.1 socket");
  EXPECT_EQ(text_of("1"), "1 3 1 3 127.0.0.1");
  EXPECT_EQ(text_of("2"), "2 3 2 3 127.0.0.1");
  EXPECT_EQ(text_of("port0"), text_of("port2"));
  expect_no_child_left();
}

TEST_F(SpawnTest, WorkersOfOneJobShareASecret) {
  ASSERT_EQ(spawn(2, "echo $TLT_JOB_SECRET > first$RANK").exit_code, 0);
  ASSERT_EQ(spawn(1, "echo $TLT_JOB_SECRET > second").exit_code, 0);
  EXPECT_EQ(text_of("first0").size(), 64u);
  EXPECT_EQ(text_of("first0"), text_of("first1"));
  EXPECT_NE(text_of("first0"), text_of("second"));
}

TEST_F(SpawnTest, RendezvousIsInThePortRange) {
  ASSERT_EQ(setenv("TLT_PORT_RANGE", "31200-31263", 1), 0);
  EXPECT_EQ(spawn(1, "echo $MASTER_PORT > port").exit_code, 0);
  ASSERT_EQ(setenv("TLT_PORT_RANGE", "many", 1), 0);
  EXPECT_THROW(spawn(1, "true"), InputError);
  unsetenv("TLT_PORT_RANGE");
  EXPECT_GE(std::stoi(text_of("port")), 31200);
  EXPECT_LE(std::stoi(text_of("port")), 31263);
}

TEST_F(SpawnTest, FailedWorkerIsNamedAndOthersAreEnded) {
  const auto start = Clock::now();
  const SpawnResult result = spawn(3, "test $RANK = 1 && exit 7; exec sleep 60");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.message, AllOf(HasSubstr("worker 1 of 3"), HasSubstr("ended with exit code 7"),
                                    HasSubstr("the other workers were stopped")));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
  expect_no_child_left();
}

// What let_workers_fail() does, as shells do it.
constexpr const char* kLetFail =
    "test $RANK = 0 && kill -USR1 $TLT_SUPERVISOR_PID; sleep 0.3; echo 1 > ready$RANK; "
    "while ! test -e ready0; do sleep 0.01; done; sleep 0.2; ";

TEST_F(SpawnTest, OthersGoOnWithoutAFailedWorkerIfRankZeroSaysSo) {
  const SpawnResult result =
      spawn(4, std::string(kLetFail) +
                   "test $RANK = 1 && exit 7; test $RANK = 2 && kill -9 $$; sleep 0.5; "
                   "echo 1 > end$RANK");
  EXPECT_EQ(result.exit_code, 0) << result.message;
  EXPECT_THAT(result.message, AllOf(HasSubstr("worker 1 of 4"), HasSubstr("ended with exit code 7"),
                                    HasSubstr("worker 2 of 4"), HasSubstr("was killed by signal 9"),
                                    HasSubstr("; the others continued")));
  EXPECT_EQ(text_of("end0"), "1");
  EXPECT_EQ(text_of("end3"), "1");
  expect_no_child_left();
}

TEST_F(SpawnTest, OnlyRankZeroSaysSo) {
  const SpawnResult result = spawn(
      3,
      "test $RANK = 1 && kill -USR1 $TLT_SUPERVISOR_PID; sleep 0.3; test $RANK = 2 && exit 7; "
      "exec sleep 60");
  EXPECT_EQ(result.exit_code, 7);
}

TEST_F(SpawnTest, WithoutRankZeroTheOthersAreEnded) {
  const SpawnResult result =
      spawn(2, std::string(kLetFail) + "test $RANK = 0 && exit 3; exec sleep 60");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.message, HasSubstr("worker 0 of 2"));
}

TEST_F(SpawnTest, WorkerThatIsStuckIsEndedAfterRankZero) {
  const auto start = Clock::now();
  const SpawnResult result =
      spawn(2, std::string(kLetFail) + "test $RANK = 1 && kill -STOP $$; true",
            /*grace_seconds=*/0.5);
  EXPECT_EQ(result.exit_code, 0) << result.message;
  EXPECT_THAT(result.message, HasSubstr("worker 1 of 2"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
}

TEST_F(SpawnTest, KilledWorkerIsNamedWithItsSignal) {
  const SpawnResult result = spawn(2, "test $RANK = 0 && kill -9 $$; exec sleep 60");
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.message,
              AllOf(HasSubstr("worker 0 of 2"), HasSubstr("was killed by signal 9")));
}

TEST_F(SpawnTest, WorkerThatIgnoresSigtermIsKilled) {
  const auto start = Clock::now();
  const SpawnResult result = spawn(2,
                                   "test $RANK = 1 && { while ! test -e ready; do sleep 0.01; "
                                   "done; exit 3; }; trap '' TERM; echo 1 > ready; exec sleep 60",
                                   /*grace_seconds=*/0.2);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
  expect_no_child_left();
}

TEST_F(SpawnTest, EarlySuccessfulExitLeavesOthersRunning) {
  EXPECT_EQ(spawn(2, "test $RANK = 0 && sleep 0.2; echo $RANK > $RANK").exit_code, 0);
  EXPECT_EQ(text_of("0"), "0");
}

TEST_F(SpawnTest, MissingProgramGivesExitCode127) {
  EXPECT_EQ(spawn_workers(1, {"x"}, {.program = "/no/such/program"}).exit_code, 127);
  EXPECT_THROW(spawn_workers(0, {"x"}), InputError);
}

TEST_F(SpawnTest, SignalsAreForwarded) {
  const pid_t pid = spawn_in_child(
      2,
      "trap 'echo got > got$RANK; exit 5' TERM; echo 1 > ready$RANK; while :; do sleep 0.01; done");
  wait_for("ready0");
  wait_for("ready1");
  kill(pid, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), 5);
  EXPECT_EQ(text_of("got0"), "got");
  EXPECT_EQ(text_of("got1"), "got");
}

TEST_F(SpawnTest, WorkerThatStopsOnASignalLeavesOthersRunning) {
  const pid_t pid = spawn_in_child(
      2,
      "if test $RANK = 1; then trap 'exit 130' TERM; echo 1 > ready1; while :; do sleep 0.01; "
      "done; fi;"
      "trap 'echo got >> got' TERM; echo 1 > ready0; while ! test -e got; do sleep 0.01; done;"
      "sleep 0.4; grep -c got got > count");
  wait_for("ready0");
  wait_for("ready1");
  kill(pid, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(text_of("count"), "1");  // it got one signal and ran to its end
}

// The other worker has caught the signal and would wait for the killed one.
TEST_F(SpawnTest, WorkerKilledAtStartByASignalEndsTheOthers) {
  const pid_t pid = spawn_in_child(
      2,
      "if test $RANK = 0; then trap 'trap - TERM' TERM; echo 1 > ready0; "
      "while :; do sleep 0.01; done; fi; while ! test -e ready0; do sleep 0.01; done; "
      "echo 1 > ready1; exec sleep 60");
  wait_for("ready1");
  const auto start = Clock::now();
  kill(pid, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
}

TEST_F(SpawnTest, WorkersDieWithTheirParent) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // this process adopts orphans
  const pid_t pid = spawn_in_child(2, "echo $$ > pid$RANK; exec sleep 60");
  wait_for("pid0");
  wait_for("pid1");
  kill(pid, SIGKILL);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  for (const char* file : {"pid0", "pid1"}) {
    int status = 0;
    const pid_t worker = std::stoi(text_of(file));
    EXPECT_EQ(waitpid(worker, &status, 0), worker);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace tlt::cluster
