// SPDX-License-Identifier: Apache-2.0
#include "reward/code.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "sandbox/process_tree.h"
#include "tests/support/test_folder.h"

namespace tlt::reward {
namespace {

constexpr double kLongTest = 60;  // seconds; never reached
constexpr const char* kDoubling = R"({"inputs": ["1", "21"], "outputs": ["2\n", "42\n"]})";

// Skipped without a sandbox; fails if TLT_NEEDS_SANDBOX is set.
class CodeRewardTest : public testing::Test {
 protected:
  void SetUp() override {
    static const std::string kWhy = [] {
      try {
        sandbox::Sandbox::check();
        return std::string();
      } catch (const InputError& error) {
        return std::string(error.what());
      }
    }();
    if (!kWhy.empty() && std::getenv("TLT_NEEDS_SANDBOX") != nullptr) FAIL() << kWhy;
    if (!kWhy.empty()) GTEST_SKIP() << kWhy;
  }
};

double score(const std::string& code, const char* tests = kDoubling, CodeOptions options = {},
             double timeout_seconds = kLongTest) {
  const std::string response = "Here it is.\n```python\n" + code + "\n```\n";
  return CodeReward(options, timeout_seconds)
      .score({.response = response, .ground_truth = tests})
      .score;
}

TEST_F(CodeRewardTest, ProgramsThatPassAllTestsScoreOne) {
  EXPECT_EQ(score("print(2 * int(input()))"), 1);
  EXPECT_EQ(score("import sys\nfor line in sys.stdin: print(int(line) + int(line))"), 1);
  EXPECT_EQ(score("def main():\n  print(int(input()) << 1)\nif __name__ == '__main__': main()"), 1);
  EXPECT_EQ(score("print(2 * int(input()))\nexit()"), 1);
  EXPECT_EQ(score("print(2 * int(input()))\nexit(1)"), 0);
  EXPECT_EQ(score("print(2)"), 0);
  EXPECT_EQ(score("print(2 * int(input()))\n1 / 0"), 0);
  EXPECT_EQ(score("print(2 * int(input())"), 0);  // not Python
  EXPECT_EQ(score(""), 0);
  EXPECT_EQ(CodeReward({}, kLongTest).score({.response = "42", .ground_truth = kDoubling}).score,
            0);
}

TEST_F(CodeRewardTest, PartialScoresTheShareThatPasses) {
  EXPECT_EQ(score("print(2)", kDoubling, {.partial = true}), 0.5);
  EXPECT_EQ(score("print(2 * int(input()))", kDoubling, {.partial = true}), 1);
}

TEST_F(CodeRewardTest, FunctionsAreCalled) {
  constexpr auto kTests =
      R"({"fn_name": "pair", "inputs": [[1, 2], ["é", null]], "outputs": [[1, 2], ["é", null]]})";
  EXPECT_EQ(score("def pair(a, b):\n  print('noise')\n  return (a, b)", kTests), 1);
  EXPECT_EQ(score("class Solution:\n  def pair(self, a, b): return [a, b]", kTests), 1);
  EXPECT_EQ(score("def pair(a, b): return (b, a)", kTests), 0);
  EXPECT_EQ(score("def other(a, b): return (a, b)", kTests), 0);
  EXPECT_EQ(score("def pair(a, b): exit()", kTests), 0);
}

TEST_F(CodeRewardTest, StatementsMustBeReached) {
  constexpr auto kTests = R"(["assert add(1, 2) == 3", "assert add(0, 0) == 0"])";
  EXPECT_EQ(score("def add(a, b): return a + b", kTests), 1);
  EXPECT_EQ(score("def add(a, b): return 3", kTests), 0);
  EXPECT_EQ(score("import sys\nsys.exit(0)", kTests), 0);
  EXPECT_EQ(score("import os\nos._exit(0)", kTests), 0);
  EXPECT_EQ(score("import os\nos.write(1, b'passed')\nos._exit(0)", kTests), 0);
}

// Each scores 0 quickly and leaves no process or file.
TEST_F(CodeRewardTest, HostileCodeIsContainedAndScoresZero) {
  const TestFolder folder;
  const std::string secret = folder / "secret", written = folder / "written";
  std::ofstream(secret) << "42";
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::filesystem::permissions(secret, std::filesystem::perms::all);
  const std::string pid = std::to_string(getpid());
  // After a misdeed that should fail; else the response scores 1.
  const std::string solves = "\nprint(2 * int(input()))";
  const std::vector<std::pair<const char*, std::string>> misdeeds = {
      {"fork bomb", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"},
      {"thread bomb",
       "import threading, time\nwhile True: threading.Thread(target=time.sleep, "
       "args=(9,)).start()"},
      {"endless loop", "while True: pass"},
      {"sleeper", "import time\ntime.sleep(1000)"},
      {"memory eater", "a = []\nwhile True: a.append(bytearray(1 << 20))"},
      {"memory in files",
       "i = 0\nwhile True:\n  open(f'/tmp/{i}', 'wb').write(bytes(1 << 20)); i += 1"},
      {"one large file", "f = open('large', 'wb')\nwhile True: f.write(bytes(1 << 20))"},
      {"file writer", "open('" + written + "', 'w').write('x')" + solves},
      {"writer to /usr", "open('/usr/bin/tlt-was-here', 'w').write('x')" + solves},
      {"network caller",  // that needs no listener
       "import socket\nsocket.socket(type=socket.SOCK_DGRAM).connect(('127.0.0.1', 22))" + solves},
      {"network caller to a name",
       "import urllib.request\nurllib.request.urlopen('http://example.com')" + solves},
      {"reader of a file", "open('" + secret + "').read()" + solves},
      {"reader of the parent", "open('/proc/" + pid + "/stat').read()" + solves},
      {"reader of passwords", "open('/etc/passwd').read()" + solves},
      {"killer", "import os\nos.kill(-1, 9)"},
      {"killer of the parent", "import os\nos.kill(" + pid + ", 9)\nprint(2)"},
      {"flood", "while True: print('x' * 1000)"},
      {"daemon",
       "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(1000)\n"
       "  os._exit(0)\n1 / 0"},
      {"closer of its output", "import os, time\nos.close(1)\ntime.sleep(1000)"},
      {"recursion", "def f(): f()\nf()"},
      {"crash", "import ctypes\nctypes.string_at(0)"},
      {"tracer",  // PTRACE_SEIZE does not stop what it traces
       "import ctypes\nif ctypes.CDLL(None).ptrace(0x4206, 1, 0, 0): raise OSError" + solves},
      {"new namespace",
       "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000): raise OSError" + solves},
      {"answerer in the driver's place",  // by the pipe of the sandbox's first process
       "import ctypes, json, os, signal, time\nfirst = os.pidfd_open(1)\n"
       "out = ctypes.CDLL(None).syscall(438, first, 1, 0)\nif out < 0: raise OSError\n"
       "os.kill(os.getppid(), signal.SIGSTOP)\n"
       "for answer in '2', '42':\n"
       "  answer = {'status': 'ok', 'out': answer, 'cpu': 0}\n"
       "  os.write(out, (json.dumps(answer) + '\\n').encode())\n"
       "  time.sleep(0.1)"}};
  for (const auto& [name, code] : misdeeds) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(score(code, kDoubling, {.test_seconds = 0.5, .memory_megabytes = 128}), 0) << name;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(taken.count(), 20) << name;  // mostly for a busy machine
  }
  EXPECT_FALSE(std::filesystem::exists(written));
  EXPECT_FALSE(std::filesystem::exists("/usr/bin/tlt-was-here"));
}

// Checks from inside the sandbox; 1 only if all hold.
TEST_F(CodeRewardTest, LimitsHoldInside) {
  constexpr auto kTests = R"({"inputs": [""], "outputs": ["as it should be"]})";
  const char* looks[] = {
      // processes
      "import os, time\nn = 0\ntry:\n  while n < 50:\n    if os.fork() == 0: time.sleep(9)\n    n "
      "+= 1\n"
      "except OSError: pass\nok = n == 5",
      // memory
      "ok = False\ntry: bytearray(200 << 20)\nexcept MemoryError: ok = True",
      // a file, and all files
      "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nok = False\n"
      "try: open('a', 'wb').write(bytes(17 << 20))\nexcept OSError: ok = True",
      "n = 0\ntry:\n  while n < 100:\n    open(str(n), 'wb').write(bytes(8 << 20))\n    n += 1\n"
      "except OSError: pass\nok = n in (7, 8)",
      // user, process and environment
      "import os\nok = os.getuid() != 0 and os.getpid() < 20 and 'TLT_SECRET' not in os.environ",
      "import os\nok = set(os.listdir('/')) == {'tmp', 'dev', 'etc', 'lib', 'lib64', 'bin', 'usr'}",
      "import os\nok = os.listdir('/dev') in (['null', 'urandom'], ['urandom', 'null'])",
      "import os\nok = os.listdir('/etc') in ([], ['ld.so.cache'])",
      "import os\nok = os.uname().nodename == 'sandbox'",
      "import os\nok = all(os.listdir(f) == [] for f in ('/usr/local', '/usr/src') if "
      "os.path.exists(f))",
      "ok = True\nfor path in ('/usr/local/x', '/usr/src/x'):\n  try: open(path, 'w'); ok = False\n"
      "  except OSError: pass",
      // system calls: EPERM, also without capabilities; clone3 is ENOSYS
      "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nok = True\n"
      "for call in ('ptrace', 'process_vm_readv', 'pidfd_open', 'pidfd_getfd', 'unshare', 'setns', "
      "'mount', 'keyctl', 'personality', 'swapon'):\n"
      "  number = {'ptrace': 101, 'process_vm_readv': 310, 'pidfd_open': 434, 'pidfd_getfd': 438, "
      "'unshare': 272, 'setns': 308, 'mount': 165, 'keyctl': 250, 'personality': 135, 'swapon': "
      "167}[call]\n"
      "  ctypes.set_errno(0)\n"
      "  ok = ok and libc.syscall(number, 0, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1\n"
      "for number in 321, 298, 425, 323, 155, 246:  # bpf, perf, io_uring, userfaultfd, "
      "pivot_root, "
      "kexec\n"
      "  ok = ok and libc.syscall(number, 0, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1\n"
      "ok = ok and libc.syscall(435, 0, 0) == -1 and ctypes.get_errno() == 38",
      "ok = True\nfor path in ('/x', '/etc/x', '/dev/x', '/usr/x'):\n  try: open(path, 'w'); ok = "
      "False\n  except OSError: pass",
      // memory outside of processes
      "import os\nok = False\ntry: os.memfd_create('a')\nexcept PermissionError: ok = True",
      "import ctypes\nlibc = ctypes.CDLL(None)\n"
      "ok = (libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600), "
      "libc.mq_open(b'/x', 0o102, 0o600, None)) == (-1, -1, -1)",
      // sockets, descriptors
      "import socket\nok = False\ntry: socket.socket()\nexcept PermissionError: ok = True",
      "import os\nok = True\nfor one in range(4, 64):\n  try: os.fstat(one); ok = False\n  except "
      "OSError: pass",
  };
  setenv("TLT_SECRET", "1", 1);
  for (const char* look : looks) {
    EXPECT_EQ(score(std::string(look) + "\nprint('as it should be' if ok else 'not so')", kTests,
                    {.memory_megabytes = 128}),
              1)
        << look;
  }
}

TEST_F(CodeRewardTest, TestsAreIsolatedFromEachOther) {
  constexpr auto kTests =
      R"({"inputs": ["", "", "", "", "", ""], "outputs": ["new", "new", "new", "new", "new", "new"]})";
  EXPECT_EQ(score("import os\nprint('old' if os.path.exists('seen') else 'new')\n"
                  "open('seen', 'w').write('x')\nos.makedirs('a/b')",
                  kTests),
            1);
  // In a folder that cannot be listed, and in one whose path is longer than a path may be.
  EXPECT_EQ(score("import os\nprint('old' if os.path.exists('closed') else 'new')\n"
                  "os.makedirs('closed/a')\nopen('closed/a/seen', 'w').write('x')\n"
                  "os.chmod('closed/a', 0)\nos.chmod('closed', 0)\nos.chmod('.', 0)",
                  kTests),
            1);
  EXPECT_EQ(score("import os\ntop = os.getcwd()\nprint('old' if os.listdir() else 'new')\n"
                  "for i in range(60):\n  os.mkdir('x' * 200)\n  os.chdir('x' * 200)\n"
                  "open('seen', 'w').write('x')\nos.chmod('..', 0)\nos.chdir(top)",
                  kTests),
            1)
      << "each test has a file system of its own";
  // The allowed number of processes, again.
  EXPECT_EQ(score("import os, time\nfor i in range(5):\n  if os.fork() == 0: time.sleep(1000)\n"
                  "print('new')",
                  kTests),
            1);
}

TEST_F(CodeRewardTest, AllTestsShareTheRewardsTime) {
  nlohmann::ordered_json tests;
  for (int i = 0; i < 100; ++i) tests["inputs"].push_back(""), tests["outputs"].push_back("1");
  EXPECT_LT(score("import time\nwhile time.process_time() < 0.3: pass\nprint(1)",
                  tests.dump().c_str(), {.partial = true}, /*timeout_seconds=*/3),
            0.2);
  const auto begin = std::chrono::steady_clock::now();  // 0.6 seconds, in wall time 3
  const double given = score("import time\ntime.sleep(0.3)\nprint(1)", tests.dump().c_str(),
                             {.partial = true}, /*timeout_seconds=*/0.6);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(given, 0.2);
  EXPECT_LT(taken.count(), 4);
}

// The time limit is CPU time: a test whose process is stopped for longer than its limit, as on a
// busy machine, passes; one that waits longer than kWallFactor times the limit does not.
TEST_F(CodeRewardTest, TimeOnABusyMachineDoesNotCount) {
  constexpr auto kTest = R"({"inputs": [""], "outputs": ["1"]})";
  const std::string code = "import time\nwhile time.process_time() < 0.1: pass\ntime.sleep(";
  EXPECT_EQ(score(code + "0.6)\nprint(1)", kTest, {.test_seconds = 0.4}), 1);
  EXPECT_EQ(score(code + "2.5)\nprint(1)", kTest, {.test_seconds = 0.4}), 0);
  // Also of a child process that it waits for.
  EXPECT_EQ(score("import os, time\nif os.fork() == 0:\n  while time.process_time() < 0.6: pass\n"
                  "  os._exit(0)\nos.wait()\nprint(1)",
                  kTest, {.test_seconds = 0.4}),
            0);
}

TEST_F(CodeRewardTest, SandboxReportsHowARunEnded) {
  using Status = sandbox::Sandbox::Status;
  const std::pair<const char*, Status> kRuns[] = {
      {"print(1)", Status::kOk},
      {"1 / 0", Status::kFailed},
      {"while True: pass", Status::kLate},
      {"while True: print('x' * 1000)", Status::kFlooded},
      {"print('x' * 101)", Status::kFlooded},
      {"print(2)", Status::kOk},
      {"import os, signal\nos.kill(-1, signal.SIGKILL)", Status::kFailed},  // no other process
      {"import os, signal\nfor s in 2, 9, 15, 19: os.kill(1, s)", Status::kOk},
      {"print(3)", Status::kOk}};
  const auto deadline = sandbox::Sandbox::Clock::now() + std::chrono::seconds(60);
  sandbox::Sandbox sandbox({}, deadline);
  for (const auto& [code, status] : kRuns) {
    const double seconds = status == Status::kLate ? 0.2 : 10;
    EXPECT_EQ(sandbox.run({{"code", code}, {"stdin", ""}}, seconds, 100, deadline).status, status)
        << code;
  }
}

// Five processes, each with the memory that one may have.
constexpr const char* kGreedyProgram =
    "import os, time\nfor i in range(5):\n  if os.fork() == 0:\n"
    "    held = bytearray(b'x') * (80 << 20)\n    time.sleep(20)\n    os._exit(0)\n"
    "while True:\n  try: os.wait()\n  except ChildProcessError: break\n"
    "print(2 * int(input()))";

TEST_F(CodeRewardTest, AllProcessesShareTheMemoryLimit) {
  const CodeOptions options = {.test_seconds = 30, .memory_megabytes = 128};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(score(kGreedyProgram, kDoubling, options), 0);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(taken.count(), 20);  // before they end by themselves
  // The same number of processes that share memory, or have little each.
  EXPECT_EQ(
      score("import os, time\nheld = bytearray(b'x') * (80 << 20)\nfor i in range(5):\n"
            "  if os.fork() == 0:\n    held.count(b'y')\n    time.sleep(0.3)\n    os._exit(0)\n"
            "for i in range(5): os.wait()\nprint(2 * int(input()))",
            kDoubling, options),
      1);
  EXPECT_EQ(score("import os, time\nfor i in range(5):\n  if os.fork() == 0:\n"
                  "    held = bytearray(b'x') * (10 << 20)\n    time.sleep(0.3)\n    os._exit(0)\n"
                  "for i in range(5): os.wait()\nprint(2 * int(input()))",
                  kDoubling, options),
            1);
}

TEST_F(CodeRewardTest, ExceedingASharedLimitEndsTheSandbox) {
  using Status = sandbox::Sandbox::Status;
  const auto deadline = sandbox::Sandbox::Clock::now() + std::chrono::seconds(60);
  const std::pair<const char*, sandbox::SandboxLimits> kGreedy[] = {
      {kGreedyProgram, {.memory_bytes = 128 << 20}},
      {"import os\nfor i in range(200000): os.close(os.open(str(i), os.O_CREAT))", {}},
      // It first stops the driver, which then cannot stop it.
      {"import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nfor i in range(2): os.fork()\n"
       "held = bytearray(b'x') * (80 << 20)\nwhile True: pass",
       {.memory_bytes = 128 << 20}}};
  for (const auto& [code, limits] : kGreedy) {
    sandbox::Sandbox sandbox(limits, deadline);
    EXPECT_EQ(sandbox.run({{"code", code}, {"stdin", "1"}}, 30, 100, deadline).status,
              Status::kGreedy)
        << code;
    EXPECT_EQ(sandbox.run({{"code", "print(1)"}, {"stdin", ""}}, 5, 100, deadline).status,
              Status::kBroken);
  }
  const auto all_ended = sandbox::Sandbox::Clock::now() + std::chrono::seconds(10);
  while (sandbox::ProcessTree(getpid()).processes().size() > 1 &&
         sandbox::Sandbox::Clock::now() < all_ended)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(sandbox::ProcessTree(getpid()).processes().size(), 1U);
}

// Without bubblewrap no code is run.
TEST(SandboxTest, WithoutBubblewrapItIsOneSentence) {
  const char* path = std::getenv("PATH");
  const std::string kept = path == nullptr ? "" : path;
  const TestFolder folder;
  setenv("PATH", folder.path().c_str(), 1);
  std::string text;
  try {
    CodeReward({}, kLongTest).check_row({.ground_truth = kDoubling});
  } catch (const InputError& error) {
    text = error.what();
  }
  EXPECT_THROW(score("print(2 * int(input()))"), Error);
  setenv("PATH", kept.c_str(), 1);
  EXPECT_NE(text.find("in a sandbox only"), text.npos) << text;
  EXPECT_EQ(text.find('\n'), text.npos) << text;
}

TEST_F(CodeRewardTest, EachThreadHasItsOwnSandbox) {
  const CodeReward reward({}, kLongTest);
  std::vector<double> scores(4);
  {
    std::vector<std::jthread> threads;
    for (auto& one : scores)
      threads.emplace_back([&] {
        one = reward
                  .score({.response = "```python\nprint(2 * int(input()))\n```",
                          .ground_truth = kDoubling})
                  .score;
      });
  }
  for (const double one : scores) EXPECT_EQ(one, 1);
}

}  // namespace
}  // namespace tlt::reward
