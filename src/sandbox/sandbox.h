// Sandbox: runs untrusted Python code in isolation.
//
// One bubblewrap process with the program of code_driver.h in it, in separate namespaces: no
// network, no visible processes of others, /usr (without /usr/local and /usr/src) to read and an
// empty folder in memory to write; a seccomp filter allows only the system calls of Python
// programs. Each run has PID and mount namespaces of its own, so nothing of it remains, and limits
// of CPU time, wall time, memory, processes, files and output. The resources of all processes
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
  int64_t processes = 6;                   // of the code, including threads
  int64_t files = int64_t{1} << 16;        // and folders, all together
};

class Sandbox {
 public:
  using Clock = ChildProcess::Clock;
  static constexpr int64_t kOwnBytes = int64_t{64} << 20;  // of the driver and bubblewrap
  // Wall time that a run may take, in CPU-time limits: where its processes wait for a CPU, a run
  // that needs half its limit succeeds on a machine ten times slower than an idle one.
  static constexpr double kWallFactor = 5;
  enum class Status {
    kOk,
    kFailed,  // an exception, or an exit status other than 0
    kLate,
    kFlooded,  // more output than allowed
    // After these no more code can be run:
    kGreedy,  // all processes together exceeded the limit of memory or files
    kBroken,  // the driver does not answer
  };
  struct Outcome {
    Status status;
    std::string output = {};  // when kOk
    double cpu_seconds = 0;   // of the code's processes that have ended, or of the first one
  };

  // Throws Error with the reason if it is not ready by the deadline.
  Sandbox(const SandboxLimits& limits, Clock::time_point deadline);

  // Runs one request of code_driver.h, without `seconds`, `wall` and `limit`. It may take `seconds`
  // of CPU time, and kWallFactor times that or until the deadline in wall time, plus a moment to
  // clean up.
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
