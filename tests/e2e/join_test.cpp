// Workers join a run that is under way (tlt train --join): it continues with them and has the
// rollouts and weights of an undisturbed run. A worker that does not come, or whose request cannot
// be used, changes nothing.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/stat.h>

#include "base/files.h"
#include "tests/support/small_run.h"

namespace tlt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Program;
using tests::read_text;
using tests::run_program;
using tests::Scratch;
using tests::worker_of;

constexpr int kManySteps = 5000;  // more than any test waits for

// False: not permitted.
bool leaves_network() {
  return unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
}
bool may_leave_network() {
  const pid_t child = fork();
  if (child == 0) _exit(leaves_network() ? 0 : 1);
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0;
}

class JoinTest : public ::testing::Test {
 protected:
  static std::vector<std::string> run_in(const std::filesystem::path& folder, int workers = 1,
                                         const std::vector<std::string>& more = {}) {
    std::vector<std::string> options = {"trainer.threads=1", "trainer.timeout_seconds=100"};
    options.insert(options.end(), more.begin(), more.end());
    return tests::small_run(folder, kManySteps, workers, options);
  }
  static std::vector<std::string> join_in(const std::filesystem::path& folder,
                                          const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = run_in(folder, 1, more);
    arguments.push_back("--join");
    return arguments;
  }

  static bool does_step(const std::filesystem::path& folder, int step) {
    return tests::appears(folder / (tests::checkpoint_folder(step) + "policy/model.safetensors"),
                          120);
  }
  static int steps_of(const std::filesystem::path& folder) {
    const std::string metrics = read_text(folder / "metrics.jsonl");
    return static_cast<int>(std::ranges::count(metrics, '\n'));
  }
  static bool says(const Program& program, const std::string& text, double seconds = 120) {
    for (int i = 0; i < seconds / 0.02; ++i) {
      if (program.output().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
  static bool has_request(const std::filesystem::path& folder) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "join", none))
      if (entry.path().extension() == ".request") return true;
    return false;
  }
  static bool waits_for_request(const std::filesystem::path& folder) {
    for (int i = 0; i < 6000 && !has_request(folder); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return has_request(folder);
  }

  // Interrupts the run after two more steps; those so far must be those of an undisturbed run.
  void expect_undisturbed(Program& run, const std::filesystem::path& folder) {
    const int steps = steps_of(folder) + 2;
    ASSERT_TRUE(does_step(folder, steps)) << run.output();
    run.send(SIGTERM);
    EXPECT_EQ(run.wait(), 143) << run.output();
    Program whole(run_in(scratch_ / "whole"), scratch_ / "whole.log");
    ASSERT_TRUE(does_step(scratch_ / "whole", steps)) << whole.output();
    whole.kill_all();
    tests::expect_same_run(folder, scratch_ / "whole", steps);
  }

  const Scratch scratch_;
};

TEST_F(JoinTest, WorkersJoinARunThatIsUnderWay) {
  const auto folder = scratch_ / "run";
  Program run(run_in(folder, 1, {"trainer.resume_mode=disable"}), scratch_ / "log");
  ASSERT_TRUE(does_step(folder, 1)) << run.output();
  Program second(join_in(folder), scratch_ / "second.log");
  ASSERT_TRUE(says(run, "2 workers from here on")) << run.output() << second.output();
  Program third(join_in(folder), scratch_ / "third.log");
  ASSERT_TRUE(says(run, "3 workers from here on")) << run.output() << third.output();
  expect_undisturbed(run, folder);
  EXPECT_EQ(second.wait(), 143) << second.output();
  EXPECT_EQ(third.wait(), 143) << third.output();
  EXPECT_TRUE(std::filesystem::is_empty(folder / "join"));
  EXPECT_THAT(read_text(folder / "metrics.jsonl"), HasSubstr(R"("rollout/workers":3)"));
}

TEST_F(JoinTest, AWorkerReplacesALostOne) {
  const auto folder = scratch_ / "run";
  Program run(run_in(folder, 2), scratch_ / "log");
  ASSERT_TRUE(does_step(folder, 1)) << run.output();
  kill(worker_of(run.pid(), 1), SIGKILL);
  ASSERT_TRUE(says(run, "worker 1 is lost; continuing with 1 worker")) << run.output();
  Program other(join_in(folder), scratch_ / "other.log");
  ASSERT_TRUE(says(run, "2 workers from here on")) << run.output() << other.output();
  expect_undisturbed(run, folder);
  EXPECT_EQ(other.wait(), 143) << other.output();
}

// It is stopped while it waits, so it is there but never connects.
TEST_F(JoinTest, AWorkerThatDoesNotComeIsNotWaitedForLong) {
  const auto folder = scratch_ / "run";
  const std::vector<std::string> fast = {"trainer.timeout_seconds=5"};
  Program late(join_in(folder, {"trainer.timeout_seconds=300"}), scratch_ / "late.log");
  ASSERT_TRUE(waits_for_request(folder)) << late.output();
  late.send(SIGSTOP);
  Program run(run_in(folder, 1, fast), scratch_ / "log");
  ASSERT_TRUE(says(run, "a worker that was to join did not come")) << run.output();
  expect_undisturbed(run, folder);
}

TEST_F(JoinTest, AWorkerThatDiffersIsRefused) {
  const auto folder = scratch_ / "run";
  Program run(run_in(folder), scratch_ / "log");
  ASSERT_TRUE(does_step(folder, 1)) << run.output();
  const auto refused = [&](const std::vector<std::string>& more,
                           const std::function<void()>& prepare = {}) {
    EXPECT_EQ(run_program(join_in(folder, more), scratch_ / "join.log", prepare), 2);
    return read_text(scratch_ / "join.log");
  };
  EXPECT_THAT(refused({"actor.clip_ratio_low=0.1"}),
              AllOf(HasSubstr("does not let this worker join"), HasSubstr("actor.clip_ratio_low")));
  // Without these conditions the worker would differ in nothing, and join.
  if (__builtin_cpu_supports("avx512dq")) {
    EXPECT_THAT(refused({}, [] { setenv("TLT_CPU_CAPABILITY", "avx2", 1); }),
                HasSubstr("TLT_CPU_CAPABILITY is avx2 here"));
  }
  if (may_leave_network()) {
    EXPECT_THAT(refused({}, [] { leaves_network(); }), HasSubstr("is on another host"));
  }
  expect_undisturbed(run, folder);
}

TEST_F(JoinTest, FilesThatAreNoRequestsAreRemoved) {
  const auto folder = scratch_ / "run", requests = folder / "join";
  std::filesystem::create_directories(requests);
  const auto write = [&](const std::string& name, const std::string& text, mode_t mode) {
    std::ofstream(requests / name) << text;
    chmod((requests / name).c_str(), mode);
  };
  write("left.request", "{}", 0600);       // no process waits
  write("open.request", "{}", 0666);       // others may have written it
  write("note.txt", "not of ours", 0644);  // stays
  mkfifo((requests / "pipe.request").c_str(), 0600);
  std::filesystem::create_symlink("/dev/zero", requests / "link.request");
  std::vector<std::string> junk;
  for (const char* text : {"", "[", "{}", "[1]", R"({"terms":{}})", R"({"terms":5,"host":7})"}) {
    const auto path = requests / fmt::format("junk{}.request", junk.size());
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
    junk.push_back(path);
  }
  std::vector<FileHandle> locked;
  for (const std::string& path : junk) {
    locked.emplace_back(path, O_RDWR);
    ASSERT_TRUE(locked.back().try_lock());
  }
  Program run(run_in(folder), scratch_ / "log");
  expect_undisturbed(run, folder);
  EXPECT_FALSE(has_request(folder));
  EXPECT_TRUE(std::filesystem::exists(requests / "note.txt"));
  EXPECT_THAT(run.output(),
              AllOf(HasSubstr("left.request: no worker"), HasSubstr("its request cannot be read")));
  for (size_t i = 0; i < junk.size(); ++i)
    EXPECT_THAT(read_text(requests / fmt::format("junk{}.answer", i)), HasSubstr("refused")) << i;
}

TEST_F(JoinTest, WithoutARunThereIsASentence) {
  EXPECT_EQ(
      run_program(join_in(scratch_ / "none", {"trainer.timeout_seconds=1"}), scratch_ / "log"), 2);
  EXPECT_THAT(read_text(scratch_ / "log"), HasSubstr("no run is under way there"));
  EXPECT_EQ(run_program(join_in(scratch_ / "none", {"trainer.save_freq=0"}), scratch_ / "log",
                        [] { setenv("WORLD_SIZE", "2", 1), setenv("RANK", "0", 1); }),
            2);
  EXPECT_THAT(read_text(scratch_ / "log"), HasSubstr("--join starts one worker"));
  Program waiting(join_in(scratch_ / "none"), scratch_ / "log");
  ASSERT_TRUE(waits_for_request(scratch_ / "none")) << waiting.output();
  waiting.send(SIGINT);
  EXPECT_EQ(waiting.wait(), 130) << waiting.output();
  EXPECT_FALSE(has_request(scratch_ / "none"));
}

TEST_F(JoinTest, ARunWithoutCheckpointsLetsNoneJoin) {
  const auto folder = scratch_ / "run";
  const std::vector<std::string> unsaved = {"trainer.save_freq=0"};
  Program late(join_in(folder, unsaved), scratch_ / "late.log");
  ASSERT_TRUE(waits_for_request(folder)) << late.output();
  Program run(run_in(folder, 1, unsaved), scratch_ / "log");
  EXPECT_EQ(late.wait(), 2);
  EXPECT_THAT(late.output(), HasSubstr("trainer.save_freq=0 keeps no checkpoint"));
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(), 143) << run.output();
}

}  // namespace
}  // namespace tlt
