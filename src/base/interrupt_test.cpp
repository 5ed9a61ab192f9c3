// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

namespace tlt {
namespace {

// Runs in a child process, so that the test program keeps its own handlers. Returns the exit code;
// -1: ended by a signal.
template <class Body>
int exit_code_of(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    clear_interrupt();
    install_interrupt_handler();
    ::_exit(body());
  }
  TLT_CHECK(child > 0, "fork");
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(InterruptTest, FirstSignalOnlySetsTheFlag) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EQ(exit_code_of([signal] {
                if (interrupted()) return 1;
                ::raise(signal);
                return interrupted() && interrupt_signal() == signal ? 42 : 2;
              }),
              42);
  }
}

TEST(InterruptTest, SecondSignalEndsTheProcess) {
  EXPECT_EQ(exit_code_of([] {
              ::raise(SIGTERM);
              ::usleep(600'000);
              ::raise(SIGINT);
              return 42;
            }),
            130);
}

TEST(InterruptTest, DuplicateSignalCountsOnce) {
  EXPECT_EQ(exit_code_of([] {
              ::raise(SIGTERM);
              ::raise(SIGTERM);
              return interrupted() ? 42 : 2;
            }),
            42);
}

TEST(InterruptTest, InterruptedReadContinues) {
  EXPECT_EQ(exit_code_of([] {
              int ends[2];
              if (::pipe(ends) != 0) return 1;
              const pid_t reader = ::getpid();
              if (::fork() == 0) {
                ::usleep(20'000);
                ::kill(reader, SIGINT);
                ::usleep(20'000);
                ::_exit(::write(ends[1], "x", 1) == 1 ? 0 : 1);
              }
              char byte = 0;
              return ::read(ends[0], &byte, 1) == 1 && interrupted() ? 42 : 2;
            }),
            42);
}

TEST(InterruptTest, ClearForgetsTheSignal) {
  EXPECT_EQ(exit_code_of([] {
              ::raise(SIGINT);
              if (!interrupted()) return 1;
              clear_interrupt();
              return interrupted() ? 2 : 42;
            }),
            42);
}

}  // namespace
}  // namespace tlt
