// SPDX-License-Identifier: Apache-2.0
#include "base/watchdog.h"

#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "base/thread_stacks.h"

namespace tlt {
namespace {

// Time for the report. It uses the log and the allocator, whose locks a hanging thread may hold.
constexpr double kReportSeconds = 5;

class Semaphore {
 public:
  Semaphore() { TLT_CHECK(::sem_init(&semaphore_, /*pshared=*/0, /*value=*/0) == 0, errno); }
  ~Semaphore() { ::sem_destroy(&semaphore_); }
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  void post() { ::sem_post(&semaphore_); }
  void wait() {
    while (::sem_wait(&semaphore_) != 0 && errno == EINTR) {
    }
  }
  // False: not posted within this time.
  [[nodiscard]] bool wait_for(double seconds) {
    const double end = steady_clock().seconds() + seconds;
    timespec until{};
    until.tv_sec = static_cast<time_t>(end);
    until.tv_nsec = static_cast<long>((end - static_cast<double>(until.tv_sec)) * 1e9);
    int result = 0;
    while ((result = ::sem_clockwait(&semaphore_, CLOCK_MONOTONIC, &until)) != 0 &&
           errno == EINTR) {
    }
    return result == 0;
  }

 private:
  sem_t semaphore_;
};

// Without the log; not if standard error blocks.
void write_directly(std::string_view text) {
  pollfd out{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0)
    static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
}

}  // namespace

class Watchdog::Impl {
 public:
  explicit Impl(double seconds) : seconds_(seconds) {
    prepare_thread_stacks();
    reporter_ = start_thread([this] { report(); });
    watcher_ = start_thread([this] { watch(); });
  }
  ~Impl() {
    is_ending_ = true;
    end_.post();
    watcher_.join();
    begin_report_.post();
    reporter_.join();
  }

 private:
  // Allocates nothing and takes no lock.
  void watch() {
    const double tick = std::min(1.0, seconds_ / 8);
    uint64_t last = watchdog_internal::progress.load(std::memory_order_relaxed);
    double idle = 0, before = steady_clock().seconds();
    while (!end_.wait_for(tick)) {
      const uint64_t count = watchdog_internal::progress.load(std::memory_order_relaxed);
      const double now = steady_clock().seconds();
      // After a longer pause the process was stopped, or the machine was suspended.
      idle = count == last ? idle + std::min(now - before, 2 * tick) : 0;
      before = now;
      last = count;
      if (idle > seconds_) end_process();
    }
  }

  [[noreturn]] void end_process() {
    begin_report_.post();
    if (!report_written_.wait_for(kReportSeconds))
      write_directly(
          "tlt: no progress, and the report on it hangs as well; this process ends "
          "(1.1 * trainer.timeout_seconds)\n");
    ::_exit(kWatchdogExitCode);
  }

  void report() {
    begin_report_.wait();
    if (is_ending_) return;
    log_error(
        "no progress for {} s (1.1 * trainer.timeout_seconds): no engine step, training pack, "
        "collective or file access; the stacks of all threads follow, and this process ends. Start "
        "the run again with the same command: it resumes from the last checkpoint",
        seconds_);
    for (const std::string& line : thread_stacks()) log_error("{}", line);
    report_written_.post();
  }

  const double seconds_;
  std::atomic<bool> is_ending_ = false;
  Semaphore end_, begin_report_, report_written_;
  std::thread reporter_, watcher_;
};

Watchdog::Watchdog(double seconds)
    : impl_(seconds > 0 ? std::make_unique<Impl>(seconds) : nullptr) {}
Watchdog::~Watchdog() = default;

}  // namespace tlt
