// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace tlt {
namespace {

// A signal this soon after the first is a duplicate: a service manager sends it to every process,
// and the parent of the workers forwards it to them.
constexpr int64_t kSameSignalNanoseconds = 500'000'000;

std::atomic<int> first_signal = 0;
std::atomic<const char*> acknowledgement = nullptr;
std::atomic<int64_t> first_at = 0;  // nanoseconds of the clock below; 0: no signal yet
static_assert(std::atomic<int64_t>::is_always_lock_free,
              "a signal handler must not wait for a lock");

int64_t now_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void acknowledge() {
  const char* text = acknowledgement.load();
  if (text == nullptr) return;
  const int error = errno;  // the interrupted code may read it
  static_cast<void>(!::write(STDERR_FILENO, text, std::strlen(text)));
  errno = error;
}

extern "C" void on_signal(int signal) {
  int64_t first = 0;
  const int64_t now = now_nanoseconds();
  if (first_at.compare_exchange_strong(first, now)) {
    first_signal = signal;
    acknowledge();
  } else if (now - first > kSameSignalNanoseconds)
    _exit(128 + signal);
}

}  // namespace

void install_interrupt_handler(const char* text) {
  acknowledgement = text;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // libraries that do not expect EINTR continue
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) {
    TLT_CHECK(sigaction(signal, &action, nullptr) == 0, "signal ", signal, " errno ", errno);
  }
}

bool interrupted() { return first_signal.load() != 0; }
int interrupt_signal() { return first_signal.load(); }
int interrupt_exit_code() { return 128 + interrupt_signal(); }
void clear_interrupt() {
  first_at = 0;
  first_signal = 0;
}

}  // namespace tlt
