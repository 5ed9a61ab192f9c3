// Sandbox: runs Python code that nobody trusts, away from everything else.
//
// One bubblewrap process with the program of code_driver.h in it, in namespaces of its own: no
// network, no other process to be seen, /usr to read and an empty folder in memory to write; a
// seccomp filter refuses system calls that no solution needs. Each run has limits of time, memory,
// processes, files and output; a process left over is killed. What all processes together take is
// looked at every hundredth of a second from outside, where no code can hinder it: a sandbox that
// takes too much is killed. Where that cannot be had, check() refuses; code is never run without
// it. As root, the user is changed to nobody first, because the kernel does not limit root's
// processes.
//
// Owns       the processes inside; they end with it.
// Threading  one thread at a time.
//
//   Sandbox sandbox({}, deadline);
//   sandbox.run({{"code", "print(1)"}, {"stdin", ""}}, 2.0, 100, deadline).output == "1\n"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "reward/child_process.h"

namespace tlt::reward {

struct SandboxLimits {
  // Address space of each process; in memory and swapped out, all together may have kOwnBytes more.
  int64_t memory_bytes = int64_t{512} << 20;
  int64_t file_bytes = int64_t{16} << 20;  // of each file; all together may have four times that
  int64_t processes = 8;                   // and threads, two of them the sandbox's own
  int64_t files = int64_t{1} << 16;        // and folders, all together
};

class Sandbox {
 public:
  using Clock = ChildProcess::Clock;
  static constexpr int64_t kOwnBytes = int64_t{64} << 20;  // of the driver and bubblewrap
  enum class Status {
    kOk,
    kFailed,  // an exception, or an end with another status than 0
    kLate,
    kFlooded,  // more output than it may write
    // Nothing more can be run in here:
    kGreedy,  // its processes together took too much memory, or made too many files
    kBroken,  // it killed the driver
  };
  struct Outcome {
    Status status;
    std::string output;  // when kOk
  };

  // Throws Error if it is not ready by the deadline, with what went wrong.
  Sandbox(const SandboxLimits& limits, Clock::time_point deadline);

  // Runs one request of code_driver.h, without `seconds` and `limit`. Never takes longer than
  // `seconds` or the deadline, but for a moment to clean up.
  Outcome run(nlohmann::ordered_json request, double seconds, int64_t output_bytes,
              Clock::time_point deadline);

  // Throws InputError, one sentence, if code cannot be run in a sandbox here.
  static void check();

 private:
  bool is_within_limits(pid_t child) const;

  const SandboxLimits limits_;
  ChildProcess child_;
};

}  // namespace tlt::reward
