// Fault injection: a full disk, a killed worker, a port in use, a signal. Each ends the run within
// a stated time, with one sentence and no partial checkpoint, and the same command resumes the run.
//
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/files.h"
#include "tests/support/breakpoint.h"
#include "tests/support/small_run.h"
#include "tests/support/stack_peek.h"

namespace tlt {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using tests::appears;
using tests::Breakpoint;
using tests::expect_same_run;
using tests::kNoBreakpoint;
using tests::kUpdate;
using tests::Program;
using tests::read_text;
using tests::run_program;
using tests::Scratch;
using tests::small_run;
using tests::wait_for_worker;
using tests::worker_of;

constexpr int kSteps = 3;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The error lines of the output, those that begin with "tlt ".
std::vector<std::string> error_lines(const std::string& output) {
  std::vector<std::string> found;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("tlt ")) found.push_back(line);
  return found;
}

// The output has one error sentence, which matches, and no internals of the program.
void expect_one_sentence(const std::string& output,
                         const ::testing::Matcher<const std::string&>& matcher) {
  const std::vector<std::string> said = error_lines(output);
  EXPECT_EQ(said.size(), 1u) << output;
  EXPECT_THAT(said.empty() ? "" : said.front(), matcher) << output;
  for (const char* noise : {"terminate called", "frame #", "what():", "Exception raised", "[W",
                            "LOG ERROR", "core dumped"})
    EXPECT_THAT(output, Not(HasSubstr(noise)));
}

// Every checkpoint but the one being written has all of its files.
void expect_no_partial_checkpoint(const std::filesystem::path& run) {
  namespace fs = std::filesystem;
  if (!fs::exists(run / "checkpoints")) return;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
    const std::string name = entry.path().filename();
    if (name == "latest" || name.ends_with(kUnfinished)) continue;
    std::vector<std::string> files = {"MANIFEST.json", "state/optimizer.safetensors",
                                      "state/loop.json"};
    if (name.starts_with("step_"))
      files.emplace_back("policy/model.safetensors");
    else  // within a step
      files.insert(files.end(), {"state/update.bin", "state/unfinished_step"});
    for (const std::string& file : files)
      EXPECT_TRUE(fs::exists(entry.path() / file)) << entry.path() / file;
  }
}

class FaultInjectionTest : public ::testing::Test {
 protected:
  std::vector<std::string> run_in(const std::filesystem::path& folder, int workers = 1) const {
    return small_run(
        folder, kSteps, workers,
        {"trainer.threads=1", "trainer.timeout_seconds=100", "trainer.on_worker_loss=stop"});
  }
  // The uninterrupted run to compare with.
  void run_whole() const {
    ASSERT_EQ(run_program(run_in(scratch_ / "whole"), scratch_ / "log"), 0)
        << read_text(scratch_ / "log");
  }
  // The same command finishes the run in `folder` with the results of the uninterrupted run, and
  // removes what the killed one may have left.
  void expect_resumes(const std::filesystem::path& folder) const {
    namespace fs = std::filesystem;
    fs::create_directories(folder / "checkpoints");
    for (const char* left : {"summary.txt", "checkpoints/latest"})
      std::ofstream(folder / (left + std::string(".1-1") + kUnfinished)) << "half";
    ASSERT_EQ(run_program(run_in(folder), scratch_ / "log"), 0) << read_text(scratch_ / "log");
    expect_same_run(folder, scratch_ / "whole", kSteps);
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      EXPECT_NE(entry.path().extension(), kUnfinished) << entry.path();
  }

  const Scratch scratch_;
};

// Of kSteps; there is a checkpoint of the step before.
Breakpoint second_update() { return {{kUpdate, 2}}; }

// Mounts a small disk at `folder`, in a mount namespace of this test. False: not permitted.
bool mount_small_disk(const std::filesystem::path& folder, const char* size) {
  if (unshare(CLONE_NEWNS) != 0) {
    const auto user = getuid();
    const auto group = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  }
  std::filesystem::create_directories(folder);
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", folder.c_str(), "tmpfs", 0, size) == 0;
}

int64_t bytes_below(const std::filesystem::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

TEST_F(FaultInjectionTest, FullDiskEndsTheRun) {
  run_whole();
  const auto disk = scratch_ / "disk", run = disk / "run";
  // Room for one checkpoint and the beginning of the next.
  const auto room = bytes_below(scratch_ / "whole" / "checkpoints/step_000001") * 3 / 2;
  if (!mount_small_disk(disk, ("size=" + std::to_string(room)).c_str()))
    GTEST_SKIP() << "this user may not mount; FileSizeLimitEndsTheRun tests the same";
  EXPECT_EQ(run_program(run_in(run), scratch_ / "log"), 2);
  expect_one_sentence(read_text(scratch_ / "log"),
                      AllOf(HasSubstr("the disk is full; free some space or choose a folder on "
                                      "another disk"),
                            HasSubstr(run.string())));
  expect_no_partial_checkpoint(run);
  EXPECT_EQ(read_text(run / "checkpoints/latest"), "step_000001\n");
  ASSERT_EQ(mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT, "size=1g"), 0);
  expect_resumes(run);
  umount(disk.c_str());
}

TEST_F(FaultInjectionTest, FileSizeLimitEndsTheRun) {
  run_whole();
  const auto run = scratch_ / "run";
  const auto limit =
      std::filesystem::file_size(scratch_ / "whole" /
                                 "checkpoints/step_000001/state/optimizer.safetensors") /
      2;
  EXPECT_EQ(run_program(run_in(run), scratch_ / "log",
                        [limit] {
                          signal(SIGXFSZ, SIG_IGN);
                          const rlimit bound{limit, limit};
                          setrlimit(RLIMIT_FSIZE, &bound);
                        }),
            2);
  expect_one_sentence(read_text(scratch_ / "log"),
                      AllOf(HasSubstr("optimizer.safetensors"), HasSubstr("File too large")));
  expect_no_partial_checkpoint(run);
  EXPECT_FALSE(std::filesystem::exists(run / "checkpoints/latest"));
  expect_resumes(run);
}

// Rank 0 detects the closed connection at once; a rank that hangs is ended by spawn_workers() after
// ten seconds.
TEST_F(FaultInjectionTest, KilledWorkerEndsTheRun) {
  const Breakpoint moment = second_update();
  if (!moment.can_set()) GTEST_SKIP() << kNoBreakpoint;
  run_whole();
  for (const int rank : {1, 0}) {
    const auto run = scratch_ / ("killed" + std::to_string(rank));
    Program program(run_in(run, 2), scratch_ / "log");
    const pid_t worker = wait_for_worker(program.pid(), rank);
    ASSERT_TRUE(moment.signal_at(worker, SIGKILL)) << program.output();
    int code = 0;
    ASSERT_TRUE(program.wait_for(12, &code)) << program.output();
    EXPECT_EQ(code, 128 + SIGKILL) << program.output();
    EXPECT_THAT(program.output(),
                HasSubstr("worker " + std::to_string(rank) + " of 2 (process " +
                          std::to_string(worker) + ") was killed by signal 9 (Killed)"));
    expect_one_sentence(program.output(),
                        HasSubstr("worker " + std::to_string(1 - rank) + " of 2"));
    expect_no_partial_checkpoint(run);
    expect_resumes(run);
  }
}

// An exception in Gloo's thread ended the process by SIGABRT (issue 23).
TEST_F(FaultInjectionTest, NoDescriptorForAConnectionIsASentence) {
  Program program(run_in(scratch_ / "run", 2), scratch_ / "log",
                  [] { setenv("LD_PRELOAD", TLT_NO_DESCRIPTOR, 1); });
  int code = 0;
  ASSERT_TRUE(program.wait_for(60, &code)) << program.output();
  EXPECT_THAT(code, AnyOf(1, 3)) << program.output();  // of the worker that ended first
  EXPECT_THAT(program.output(),
              AllOf(HasSubstr(" of 2): a thread ended: "), HasSubstr("accept: Too many open files"),
                    HasSubstr("; raise the limit of open files (ulimit -n)\n"),
                    Not(HasSubstr("terminate called")), Not(HasSubstr("core dumped"))));
}

// ZeroMQ ended the process by SIGABRT, an exit code that a launcher does not know (issue 23).
TEST_F(FaultInjectionTest, NoDescriptorForTheControlPlaneIsASentence) {
  Program program(run_in(scratch_ / "run", 2), scratch_ / "log", [] {
    setenv("LD_PRELOAD", TLT_NO_DESCRIPTOR, 1);
    setenv("TLT_NO_DESCRIPTOR_FOR_ZEROMQ", "1", 1);
  });
  int code = 0;
  ASSERT_TRUE(program.wait_for(60, &code)) << program.output();
  EXPECT_THAT(code, AnyOf(1, 3)) << program.output();  // of the worker that ended first
  EXPECT_THAT(program.output(),
              AllOf(HasSubstr("Too many open files (src/epoll.cpp"),
                    HasSubstr("raise the limit (ulimit -n, -u, -v)"), Not(HasSubstr("signal 6"))));
}

// For longer than a worker may be silent in the rollouts.
TEST_F(FaultInjectionTest, WorkerStoppedInTheUpdateIsNotLost) {
  const Breakpoint update({{kUpdate}});
  const tests::StackPeek peek({kUpdate, "tlt::rollout::Engine::step("});
  if (!update.can_set() || !peek.can_look()) GTEST_SKIP() << kNoBreakpoint;
  const std::vector<std::string> options = {
      "trainer.threads=1", "trainer.timeout_seconds=40",  // lost after a tenth, in the rollouts
      "trainer.on_worker_loss=stop"};
  tests::expect_small_run(scratch_, "whole", kSteps, 1, options);
  const auto run = scratch_ / "run";
  Program program(small_run(run, kSteps, 2, options), scratch_ / "log");
  const pid_t first = wait_for_worker(program.pid(), 0), second = wait_for_worker(program.pid(), 1);
  ASSERT_TRUE(update.signal_at(second, SIGSTOP)) << program.output();
  std::this_thread::sleep_for(std::chrono::milliseconds(5500));
  EXPECT_TRUE(peek.is_within(first, 0)) << "it does not wait for the second worker";
  kill(second, SIGCONT);
  int code = 0;
  ASSERT_TRUE(program.wait_for(60, &code)) << program.output();
  EXPECT_EQ(code, 0) << program.output();
  EXPECT_THAT(program.output(), Not(HasSubstr(" is lost")));
  expect_same_run(run, scratch_ / "whole", kSteps);
}

// The environment variables a launcher sets for `rank` of two workers on this machine.
std::function<void()> launched(int rank, int port) {
  return [=] {
    for (const auto& [name, value] : {std::pair("RANK", rank),
                                      {"WORLD_SIZE", 2},
                                      {"LOCAL_RANK", rank},
                                      {"LOCAL_WORLD_SIZE", 2},
                                      {"MASTER_PORT", port}})
      setenv(name, std::to_string(value).c_str(), 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
  };
}

// The score is the length of the program's input line without the id. A program that fails at every
// fifth response costs only these their score: the run names the rows and the cause, and continues.
TEST_F(FaultInjectionTest, FailingRewardCostsOnlyItsScores) {
  const auto run = [&](const std::string& failure) {
    const auto folder = scratch_ / "run";
    std::filesystem::remove_all(folder);
    const std::string command = "n=0; while read -r line; do n=$((n+1)); if [ $n = 5 ]; then " +
                                failure + "; else rest=${line#*,}; echo ${#rest}; fi; done";
    EXPECT_EQ(run_program(small_run(folder, /*steps=*/1, /*workers=*/1,
                                    {"trainer.threads=1", "reward.functions=[\"command\"]",
                                     "reward.threads=1", "reward.timeout_seconds=1",
                                     "reward.command=" + command}),
                          scratch_ / "log"),
              0);
    std::vector<nlohmann::json> rows;
    std::istringstream lines(read_text(folder / "rollouts/000001.jsonl"));
    for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  };
  const auto whole = run("rest=${line#*,}; echo ${#rest}");
  ASSERT_EQ(whole.size(), 16U);
  EXPECT_THAT(read_text(scratch_ / "log"), Not(HasSubstr("no score")));
  const std::pair<const char*, const char*> kFailures[] = {
      {"echo nonsense", "wrote `nonsense`, which is no score"},
      {"echo 1e300", "wrote `1e300`, which is no score"},
      {"sleep 100", "gave no score within 0.9 seconds"},
      {"exit 3", "ended with status 3 before it gave a score"},
      {"while :; do echo flood; done", "wrote "}};
  for (const auto& [failure, said] : kFailures) {
    const auto rows = run(failure);
    ASSERT_EQ(rows.size(), whole.size()) << failure;
    size_t faults = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const bool is_fault = rows[i].contains("reward_fault");
      faults += is_fault ? 1 : 0;
      EXPECT_EQ(rows[i]["output"], whole[i]["output"]);
      EXPECT_EQ(rows[i]["score"], is_fault ? nlohmann::json(0.0) : whole[i]["score"]) << failure;
    }
    EXPECT_EQ(faults, 3U) << failure;
    EXPECT_EQ(tests::sum_of_metric(scratch_ / "run", "reward/unscored"), 3);
    EXPECT_THAT(read_text(scratch_ / "log"),
                AllOf(HasSubstr(" W 3 responses so far have no score and count as "
                                "0; countdown:"),
                      HasSubstr(": problem "), HasSubstr(", sample "), HasSubstr(said)));
  }
}

// Occupies a port during its lifetime.
class TakenPort {
 public:
  TakenPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* place = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, place, size), 0);
    EXPECT_EQ(getsockname(socket_, place, &size), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { close(socket_); }
  int port() const { return port_; }

 private:
  const int socket_;
  int port_ = 0;
};

TEST_F(FaultInjectionTest, PortInUseIsNamed) {
  const TakenPort taken;
  EXPECT_EQ(run_program(run_in(scratch_ / "run"), scratch_ / "log", launched(0, taken.port())), 2);
  expect_one_sentence(
      read_text(scratch_ / "log"),
      AllOf(HasSubstr("cannot listen on 127.0.0.1 port " + std::to_string(taken.port())),
            HasSubstr("set MASTER_PORT to a free port")));
}

TEST_F(FaultInjectionTest, MissingWorkerIsNamed) {
  const int port = TakenPort().port();  // free again
  for (const int rank : {0, 1}) {
    std::vector<std::string> arguments = run_in(scratch_ / "run");
    arguments.push_back("trainer.timeout_seconds=2");
    const double start = now();
    EXPECT_EQ(run_program(arguments, scratch_ / "log", launched(rank, port)), 1);
    EXPECT_LT(now() - start, 10);
    expect_one_sentence(read_text(scratch_ / "log"),
                        rank == 0 ? HasSubstr("no response from rank 1 after 2 s")
                                  : HasSubstr("cannot reach rank 0 at 127.0.0.1 port " +
                                              std::to_string(port) + " within 2 s"));
  }
}

// The prompts of a step's dump.
std::set<std::string> prompts_of(const std::filesystem::path& dump) {
  std::set<std::string> prompts;
  std::ifstream file(dump);
  for (std::string line; std::getline(file, line);)
    prompts.insert(nlohmann::json::parse(line).at("input").get<std::string>());
  return prompts;
}

// A chat template that prints the time: on a worker in another time zone, later.
TEST_F(FaultInjectionTest, AnotherClockRendersTheSamePrompts) {
  std::ofstream(scratch_ / "chat.jinja")
      << "{{ strftime_now('%d%H%M%S') }}{{ messages[0].content }}<think>";
  std::ofstream(scratch_ / "rows.jsonl") << R"({"prompt": [{"role": "user", "content": "1:1"}]})"
                                         << "\n";
  const auto run = [&](int steps, int workers, const char* zone) {
    return run_program(small_run(scratch_ / "run", steps, workers,
                                 {"data.train_files=" + (scratch_ / "rows.jsonl").string(),
                                  "data.val_files=" + (scratch_ / "rows.jsonl").string(),
                                  "data.chat_template=" + (scratch_ / "chat.jinja").string(),
                                  "data.train_batch_size=1", "actor.ppo_mini_batch_size=1",
                                  "data.max_prompt_length=64", "reward.functions=format",
                                  "trainer.test_freq=1", "trainer.threads=1"}),
                       scratch_ / "log", [zone] { setenv("TZ", zone, 1); });
  };
  ASSERT_EQ(run(1, 1, "AAA-5"), 0) << read_text(scratch_ / "log");
  ASSERT_EQ(run(2, 2, "BBB+7"), 0) << read_text(scratch_ / "log");
  const auto first = prompts_of(scratch_ / "run/rollouts/000001.jsonl");
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(first.begin()->ends_with("1:1<think>")) << *first.begin();
  EXPECT_EQ(first.begin()->find("1:1"), 8u) << "day, hour, minute, second";
  for (const char* later :
       {"rollouts/000002.jsonl", "validation/000001.jsonl", "validation/000002.jsonl"})
    EXPECT_EQ(prompts_of(scratch_ / "run" / later), first) << later;
}

// Workers of a launcher, of which the second one has other files under the same names.
class OtherFilesTest : public FaultInjectionTest {
 protected:
  // A copy of the model in which `count` weights from this byte on have the other sign.
  std::string with_flipped_signs(const char* model, std::streamoff first, int count) const {
    const auto folder = scratch_ / "model";
    std::filesystem::copy(std::filesystem::path(TLT_SOURCE_DIR) / model, folder);
    std::fstream file(folder / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    std::vector<char> bytes(static_cast<size_t>(2 * count));
    file.seekg(first).read(bytes.data(), std::ssize(bytes));
    for (size_t i = 1; i < bytes.size(); i += 2) bytes[i] = static_cast<char>(bytes[i] ^ 0x80);
    file.seekp(first).write(bytes.data(), std::ssize(bytes));
    return folder;
  }
  // Both workers end with this code and a sentence that says `said`.
  void expect_ends(
      int wanted, const char* said, const std::vector<std::string>& options,
      const std::vector<std::string>& options_of_second,
      const std::function<void(int rank)>& prepare = [](int) {}) const {
    const int port = TakenPort().port();
    const auto start = [&](int rank, const std::string& log) {
      std::vector<std::string> arguments = run_in(scratch_ / "run");
      arguments.insert(arguments.end(), options.begin(), options.end());
      if (rank == 1)
        arguments.insert(arguments.end(), options_of_second.begin(), options_of_second.end());
      return Program(arguments, scratch_ / log, [=] { launched(rank, port)(), prepare(rank); });
    };
    Program first = start(0, "log0"), second = start(1, "log1");
    for (Program* program : {&first, &second}) {
      int code = 0;
      ASSERT_TRUE(program->wait_for(60, &code)) << program->output();
      EXPECT_EQ(code, wanted) << program->output();
      if (wanted != 0) expect_one_sentence(program->output(), HasSubstr(said));
    }
  }
  // Gives each worker its own folder at descriptor 99: host0 and host1.
  std::function<void(int rank)> own_folders() const {
    return [this](int rank) {
      const auto folder = scratch_ / ("host" + std::to_string(rank));
      dup2(open(folder.c_str(), O_RDONLY | O_DIRECTORY), 99);
    };
  }
};

TEST_F(OtherFilesTest, OtherWeightsAreRefused) {
  // Of a large file some blocks are compared, and this byte is in one; a small one as a whole.
  for (const char* model : {"models/demo", tests::kSmallModel}) {
    expect_ends(2, "rank 1 reads other contents than rank 0 for model.path",
                {std::string("model.path=") + model},
                {"model.path=" + with_flipped_signs(model, 100'000, 1)});
    std::filesystem::remove_all(scratch_ / "model");
  }
}

TEST_F(OtherFilesTest, WeightsOfRankZeroAreSentIfAsked) {
  run_whole();
  expect_ends(0, "", {"trainer.broadcast_weights=true"},
              {"model.path=" + with_flipped_signs(tests::kSmallModel, 100'000, 1000)});
  expect_same_run(scratch_ / "run", scratch_ / "whole", kSteps);
}

TEST_F(OtherFilesTest, OtherRewardProgramsAreRefused) {
  for (const int rank : {0, 1}) {
    const auto folder = scratch_ / ("host" + std::to_string(rank));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "reward.sh") << "while read -r line; do echo " << rank << "; done\n";
  }
  expect_ends(2, "rank 1 reads other contents than rank 0 for reward.command: /proc/self/fd/99/",
              // The shell does not have the worker's descriptor, so it only names the file.
              {"reward.functions=command",
               "reward.command=set /proc/self/fd/99/reward.sh && while "
               "read -r line; do echo 1; done"},
              {}, own_folders());
}

TEST_F(OtherFilesTest, OtherDataAreRefused) {
  std::vector<std::string> rows = {R"({"prompt": "1,2,3:6<think>", "answer": "6"})",
                                   R"({"prompt": "2,3,4:9<think>", "answer": "9"})"};
  for (const int rank : {0, 1}) {
    const auto folder = scratch_ / ("host" + std::to_string(rank));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "train.jsonl") << rows[0] << "\n" << rows[1] << "\n";
    std::swap(rows[0], rows[1]);
  }
  expect_ends(2, "rank 1 reads other contents than rank 0 for data.train_files: ",
              {"data.train_files=/proc/self/fd/99/train.jsonl"}, {}, own_folders());
}

TEST_F(OtherFilesTest, OtherSecretsAreRefused) {
  expect_ends(2, "that was not written with the job secret of this worker (key joined/", {}, {},
              [](int rank) {
                setenv("TLT_JOB_SECRET",
                       rank == 0 ? "sixteen letters or more" : "another secret than that", 1);
              });
}

TEST_F(OtherFilesTest, OtherInstructionSetsAreRefused) {
  if (!__builtin_cpu_supports("avx512dq")) GTEST_SKIP() << "this processor has AVX2 only";
  expect_ends(2, "TLT_CPU_CAPABILITY is avx2 here and avx512", {}, {}, [](int rank) {
    if (rank == 1) setenv("TLT_CPU_CAPABILITY", "avx2", 1);
  });
}

// The changed weights are between the blocks that the workers compare at the start; a small file is
// compared as a whole.
TEST_F(OtherFilesTest, OtherProbabilitiesEndTheRunBeforeTheStepIsSaved) {
  constexpr const char* kModel = "models/demo";
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(
      std::filesystem::path(TLT_SOURCE_DIR) / kModel / "model.safetensors"));
  constexpr std::streamoff kBlock = 64 << 10;
  const std::streamoff between = (size - kBlock) * 30 / 63 + kBlock + 1000;
  ASSERT_GT((size - kBlock) * 31 / 63, between + 4000);
  const std::string changed = with_flipped_signs(kModel, between / 2 * 2, 1000);
  for (const char* early : {"true", "false"}) {
    expect_ends(
        1, "and must be the same: a worker has other weights",
        {std::string("actor.early_gradients=") + early, std::string("model.path=") + kModel},
        {"model.path=" + changed});
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "run/checkpoints/latest")) << early;
    std::filesystem::remove_all(scratch_ / "run");
  }
}

// The same without `--workers`, where no parent process monitors the workers.
TEST_F(FaultInjectionTest, KilledWorkerOfALauncherEndsTheRun) {
  const Breakpoint moment = second_update();
  if (!moment.can_set()) GTEST_SKIP() << kNoBreakpoint;
  run_whole();
  const auto run = scratch_ / "run";
  const int port = TakenPort().port();
  Program first(run_in(run), scratch_ / "log0", launched(0, port)),
      second(run_in(run), scratch_ / "log1", launched(1, port));
  ASSERT_TRUE(moment.at(second.pid(), [&] { second.kill_all(); }))
      << first.output() << second.output();
  int code = 0;
  ASSERT_TRUE(first.wait_for(25, &code)) << first.output();  // timeout_seconds and a little
  EXPECT_EQ(code, 3);
  expect_one_sentence(first.output(), AnyOf(HasSubstr("no response from rank 1"),
                                            HasSubstr("worker 1 was lost during the rollouts")));
  expect_no_partial_checkpoint(run);
  expect_resumes(run);
}

// The first signal ends the run with a checkpoint; one that arrives before the first step ends the
// program.
TEST_F(FaultInjectionTest, SignalAtAnyMomentIsResumable) {
  const double start = now();
  run_whole();
  const double seconds = now() - start;
  std::mt19937 random(4);
  for (const int signal : {SIGINT, SIGTERM})
    for (const int workers : {1, 2}) {
      const auto run = scratch_ / "run";
      Program program(run_in(run, workers), scratch_ / "log");
      int code = 0;
      if (!program.wait_for(std::uniform_real_distribution<double>(0, 1)(random) * seconds,
                            &code)) {
        program.send(signal);
        ASSERT_TRUE(program.wait_for(30, &code)) << program.output();
      }
      EXPECT_THAT(code, AnyOf(0, 128 + signal)) << program.output();
      EXPECT_THAT(error_lines(program.output()), ::testing::IsEmpty());
      expect_no_partial_checkpoint(run);
      expect_resumes(run);
      std::filesystem::remove_all(run);
    }
}

TEST_F(FaultInjectionTest, SecondSignalEndsAtOnce) {
  for (const int workers : {1, 2}) {
    auto arguments = run_in(scratch_ / "run", workers);
    // After the first signal the run waits some seconds for scores.
    const std::string waits = scratch_ / "waits";
    for (const std::string& slow :
         {std::string("reward.functions=[\"command\"]"), std::string("reward.timeout_seconds=100"),
          "reward.command=read -r line; echo 0; read -r line; : > " + waits + "; exec sleep 1000"})
      arguments.push_back(slow);
    std::filesystem::remove(waits);
    Program program(arguments, scratch_ / "log");
    ASSERT_TRUE(appears(waits)) << program.output();  // with a response: after the start
    program.send(SIGINT);
    int code = 0;
    ASSERT_FALSE(program.wait_for(1, &code)) << "it did not wait: " << program.output();
    program.send(SIGINT);
    ASSERT_TRUE(program.wait_for(2, &code)) << program.output();
    EXPECT_EQ(code, 130) << program.output();
    std::filesystem::remove_all(scratch_ / "run");
  }
}

// A signal that reaches one worker stops all of them after the same step.
TEST_F(FaultInjectionTest, SignalToOneWorkerStopsAll) {
  const std::string folder = "trainer.default_local_dir=" + (scratch_ / "run").string();
  const std::vector<std::string> rl =
                                     small_run(scratch_ / "run", 400, 2, {"trainer.save_freq=400"}),
                                 warm_up = {"sft",
                                            "recipes/demo_warmup_1.toml",
                                            folder,
                                            "data.train_batch_size=4",
                                            "trainer.save_freq=0",
                                            "trainer.timeout_seconds=20",
                                            "--workers",
                                            "2"};
  for (const auto& arguments : {rl, warm_up}) {
    Program program(arguments, scratch_ / "log");
    for (int i = 0; i < 3000 && read_text(scratch_ / "run" / "metrics.jsonl").empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const pid_t worker = worker_of(program.pid(), 1);
    ASSERT_GT(worker, 0) << program.output();
    kill(worker, SIGTERM);
    int code = 0;
    ASSERT_TRUE(program.wait_for(15, &code)) << program.output();
    EXPECT_EQ(code, 128 + SIGTERM) << program.output();
    EXPECT_THAT(program.output(), HasSubstr("stopped at step"));
    std::filesystem::remove_all(scratch_ / "run");
  }
}

// As service managers stop a program: every process gets the signal, the workers get it twice.
TEST_F(FaultInjectionTest, SignalToProcessGroupCountsOnce) {
  const Breakpoint moment = second_update();
  if (!moment.can_set()) GTEST_SKIP() << kNoBreakpoint;
  run_whole();
  Program program(run_in(scratch_ / "run", 2), scratch_ / "log");
  ASSERT_TRUE(moment.at(wait_for_worker(program.pid(), 0), [&] { kill(-program.pid(), SIGTERM); }))
      << program.output();
  EXPECT_EQ(program.wait(), 128 + SIGTERM) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("the same command resumes from there"));
  expect_resumes(scratch_ / "run");
}

}  // namespace
}  // namespace tlt
