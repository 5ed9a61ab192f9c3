// Watchdog: ends the process if it makes no progress for too long: the engine thread hangs in a
// deadlock, an endless loop, a read of a dead network disk, or a debugger has stopped it.
//
// Progress is whatever calls report_progress(): engine steps, training packs, collectives, reading
// and writing files, and each turn of a loop that waits for other workers or rewards, which have
// bounds of their own. Without any, the watchdog logs a sentence and the stacks of all threads, and
// calls _exit(kWatchdogExitCode). A worker that ends so is lost for the others; the run is
// resumable. Time in which the whole process was stopped (SIGSTOP) does not count.
//
// Owns       two threads: one compares the count, the other writes the report. The first ends the
//            process even if the second hangs in the log or in the allocator.
// Not here   waits for other workers: each collective has a limit (cluster/comm.h).
// Threading  report_progress(): any thread. The stacks are read by a signal (SIGRTMAX - 1), whose
//            handler is installed only then. One Watchdog per process.
//
//   const Watchdog watchdog(/*seconds=*/900);
//   while (has_work()) step(), report_progress();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace tlt {

inline constexpr int kWatchdogExitCode = 1;

namespace watchdog_internal {
inline std::atomic<uint64_t> progress = 0;
}

inline void report_progress() {
  watchdog_internal::progress.fetch_add(1, std::memory_order_relaxed);
}

class Watchdog {
 public:
  // `seconds` without progress end the process; 0: off, no thread is started.
  explicit Watchdog(double seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;  // null: off
};

}  // namespace tlt
