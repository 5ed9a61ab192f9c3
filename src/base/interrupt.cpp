// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/check.h"

namespace tlt {
namespace {

constexpr int kInterruptedExitCode = 130;  // 128 + SIGINT, as shells have it

std::atomic<int> first_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not wait for a lock");

extern "C" void on_signal(int signal) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, signal)) _exit(kInterruptedExitCode);
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // libraries that do not expect EINTR go on
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) {
    TLT_CHECK(sigaction(signal, &action, nullptr) == 0, "signal ", signal, " errno ", errno);
  }
}

bool interrupted() { return first_signal.load() != 0; }
int interrupt_signal() { return first_signal.load(); }
void request_interrupt() { first_signal = SIGINT; }
void clear_interrupt() { first_signal = 0; }

}  // namespace tlt
