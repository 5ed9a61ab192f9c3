// run_ranks: runs several ranks inside one test, each a real process.
//
//   const auto ends = run_ranks(2, [](const Launch& launch) { EXPECT_EQ(launch.world_size, 2); });
//   EXPECT_THAT(ends, Each(kPassed));
//
// Call it before the test process has started threads (no tensor work in the parent).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "cluster/address.h"
#include "cluster/launch.h"

namespace tlt::cluster {

// How a rank ended: its exit code, or 128 + n if signal n ended it.
constexpr int kPassed = 0, kExpectationFailed = 1, kThrew = 3;

inline int run_rank(const std::function<void(const Launch&)>& body, const Launch& launch) {
  try {
    body(launch);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", launch.rank, error.what());
    return kThrew;
  }
  return ::testing::Test::HasFailure() ? kExpectationFailed : kPassed;
}

// Runs `body` in `count` processes and waits for them; kills those that run longer than
// `bound_seconds`. A failed EXPECT_… in a rank shows in its exit code.
inline std::vector<int> run_ranks(int count, const std::function<void(const Launch&)>& body,
                                  double bound_seconds = 30) {
  const Listener listener = listen_on("127.0.0.1", 0);
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int rank = 0; rank < count; ++rank) {
    const pid_t pid = fork();
    TLT_CHECK(pid >= 0, "cannot start rank ", rank);
    pids.push_back(pid);
    if (pid != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Launch launch{.rank = rank, .world_size = count, .local_rank = rank, .local_world_size = count};
    launch.master_port = listener.port;
    if (rank == 0)
      launch.listen_fd = listener.fd;
    else
      close(listener.fd);
    const int code = run_rank(body, launch);
    std::fflush(nullptr);
    _exit(code);
  }
  close(listener.fd);
  std::vector<int> ends(count, -1);
  const auto start = std::chrono::steady_clock::now();
  for (int open = count; open > 0;) {
    const bool late =
        std::chrono::steady_clock::now() - start > std::chrono::duration<double>(bound_seconds);
    for (int rank = 0; rank < count; ++rank) {
      int status = 0;
      if (ends[rank] >= 0) continue;
      if (late) kill(pids[rank], SIGKILL);
      if (waitpid(pids[rank], &status, late ? 0 : WNOHANG) != pids[rank]) continue;
      ends[rank] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      --open;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return ends;
}

}  // namespace tlt::cluster
