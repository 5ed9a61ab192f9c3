// SPDX-License-Identifier: Apache-2.0
#include "base/watchdog.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/thread_stacks.h"

namespace tlt {

// Not inlined, so that it is on the stack.
[[gnu::noinline]] void endless_loop_of_test() {
  volatile bool is_over = false;
  while (!is_over) {
  }
}

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Seconds = std::chrono::duration<double>;

#if defined(__SANITIZE_THREAD__)
constexpr bool kIsThreadSanitizer = true;
#else
constexpr bool kIsThreadSanitizer = false;
#endif

struct Ended {
  int code = -1;  // -1: by a signal
  std::string said;
};

// Runs in a child process; while it runs, `disturb` is called with its id.
template <class Body, class Disturb>
Ended run_in_child(const Body& body, const Disturb& disturb) {
  int pipe_ends[2];
  TLT_CHECK(::pipe(pipe_ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe_ends[1], STDERR_FILENO);
    ::close(pipe_ends[0]);
    ::close(pipe_ends[1]);
    ::_exit(body());
  }
  ::close(pipe_ends[1]);
  disturb(child);
  Ended ended;
  char buffer[4096];
  for (ssize_t bytes = 0; (bytes = ::read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
    ended.said.append(buffer, static_cast<size_t>(bytes));
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}
template <class Body>
Ended run_in_child(const Body& body) {
  return run_in_child(body, [](pid_t) {});
}

TEST(WatchdogTest, EndlessLoopEndsTheProcessWithItsStack) {
  if (kIsThreadSanitizer)
    GTEST_SKIP() << "under ThreadSanitizer a thread gets no signal before it calls libc";
  const Ended ended = run_in_child([] {
    const Watchdog watchdog(0.2);
    endless_loop_of_test();
    return 42;
  });
  EXPECT_EQ(ended.code, kWatchdogExitCode);
  EXPECT_THAT(ended.said, AllOf(HasSubstr("no progress for 0.2 s"), HasSubstr("main thread"),
                                HasSubstr("tlt::endless_loop_of_test()")));
}

TEST(WatchdogTest, ProgressKeepsTheProcess) {
  EXPECT_EQ(run_in_child([] {
              const Watchdog watchdog(0.4);
              for (int i = 0; i < 60; ++i) {
                std::this_thread::sleep_for(Seconds(0.02));
                report_progress();
              }
              return 42;
            }).code,
            42);
}

TEST(WatchdogTest, ZeroIsOff) {
  EXPECT_EQ(run_in_child([] {
              const Watchdog watchdog(0);
              std::this_thread::sleep_for(Seconds(0.3));
              return 42;
            }).code,
            42);
}

TEST(WatchdogTest, StoppedTimeDoesNotCount) {
  const auto stop_and_continue = [](pid_t child) {
    std::this_thread::sleep_for(Seconds(0.3));
    ::kill(child, SIGSTOP);
    std::this_thread::sleep_for(Seconds(2));
    ::kill(child, SIGCONT);
  };
  EXPECT_EQ(run_in_child(
                [] {
                  const Watchdog watchdog(1.5);
                  std::this_thread::sleep_for(Seconds(0.6));
                  report_progress();
                  return 42;
                },
                stop_and_continue)
                .code,
            42);
}

// A hanging thread may hold a lock that the report needs, such as that of standard error.
TEST(WatchdogTest, ReportThatHangsDoesNotKeepTheProcess) {
  if (kIsThreadSanitizer)
    GTEST_SKIP() << "the _exit() of ThreadSanitizer waits for the lock of standard error";
  const auto begin = std::chrono::steady_clock::now();
  const Ended ended = run_in_child([] {
    ::flockfile(stderr);
    int pipe_ends[2];
    if (::pipe(pipe_ends) != 0) return 3;
    ::dup2(pipe_ends[1], STDERR_FILENO);  // which is never read
    const std::string page(4096, 'x');
    ::fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    while (::write(STDERR_FILENO, page.data(), page.size()) > 0) {
    }
    ::fcntl(STDERR_FILENO, F_SETFL, 0);
    const Watchdog watchdog(0.2);
    endless_loop_of_test();
    return 42;
  });
  EXPECT_EQ(ended.code, kWatchdogExitCode);
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 20);
}

TEST(ThreadStacksTest, ThreadThatBlocksSignalsIsNamed) {
  const Ended ended = run_in_child([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    const Watchdog watchdog(0.2);
    endless_loop_of_test();
    return 42;
  });
  EXPECT_EQ(ended.code, kWatchdogExitCode);
  EXPECT_THAT(ended.said, AllOf(HasSubstr("main thread"), HasSubstr("gives no stack")));
}

}  // namespace
}  // namespace tlt
