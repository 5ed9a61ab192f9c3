// Sandbox: runs untrusted Python code in isolation.
//
// One bubblewrap process with the program of code_driver.h in it, in separate namespaces: no
// network, no visible processes of others, /usr to read and an empty folder in memory to write; a
// seccomp filter denies system calls that no solution needs. Each run has limits of time, memory,
// processes, files and output; remaining processes are killed. The resources of all processes
// together are checked every hundredth of a second from outside, where no code can interfere: a
// sandbox above its limits is killed. If no sandbox is available, check() throws; code is never run
// without one. As root, the user is changed to `nobody` first, because the kernel does not limit
// root's processes.
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

#include "sandbox/child_process.h"

namespace tlt::sandbox {

struct SandboxLimits {
  // Address space of each process; memory and swap of all together may be kOwnBytes more.
  int64_t memory_bytes = int64_t{512} << 20;
  int64_t file_bytes = int64_t{16} << 20;  // of each file; all together may have four times that
  int64_t processes = 8;                   // including threads; two are the sandbox's own
  int64_t files = int64_t{1} << 16;        // and folders, all together
};

class Sandbox {
 public:
  using Clock = ChildProcess::Clock;
  static constexpr int64_t kOwnBytes = int64_t{64} << 20;  // of the driver and bubblewrap
  enum class Status {
    kOk,
    kFailed,  // an exception, or an exit status other than 0
    kLate,
    kFlooded,  // more output than allowed
    // After these no more code can be run:
    kGreedy,  // all processes together exceeded the limit of memory or files
    kBroken,  // it killed the driver
  };
  struct Outcome {
    Status status;
    std::string output;  // when kOk
  };

  // Throws Error with the reason if it is not ready by the deadline.
  Sandbox(const SandboxLimits& limits, Clock::time_point deadline);

  // Runs one request of code_driver.h, without `seconds` and `limit`. Takes at most `seconds` or
  // until the deadline, plus a moment to clean up.
  Outcome run(nlohmann::ordered_json request, double seconds, int64_t output_bytes,
              Clock::time_point deadline);

  // Throws InputError, one sentence, if no sandbox is available on this machine.
  static void check();

 private:
  bool is_within_limits(pid_t child) const;

  const SandboxLimits limits_;
  ChildProcess child_;
};

}  // namespace tlt::sandbox
