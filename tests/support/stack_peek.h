// StackPeek: finds out which functions of the program a running process is in, without its
// cooperation.
//
// The process is stopped for less than a millisecond and its main thread's stack is searched for
// return addresses within the given functions. A stack slot that is not written again may hold an
// old address: so a process counts as within one of the functions only if it is not within another.
//
// Not here   machines other than x86-64, and those without ptrace: can_look() is false.
//   StackPeek peek({"tlt::rollout::Engine::step("});
//   if (peek.kill_within(worker, 0)) … it was killed during decoding …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tests/support/program_code.h"

namespace tlt::tests {

class StackPeek {
 public:
  // Names as `nm -C` writes them, or a prefix of that.
  explicit StackPeek(const std::vector<std::string>& functions) : ranges_(code_of(functions)) {}

  bool can_look() const { return kCanTrace && !ranges_.empty(); }

  // Kills the process (-9) if it is within that function and no other; else it continues.
  bool kill_within(pid_t process, size_t function) const {
    return look(process, /*kills=*/true, [&] { return is_only_in(process, function); });
  }
  // Whether it is within that function and no other; it continues.
  bool is_within(pid_t process, size_t function) const {
    return look(process, /*kills=*/false, [&] { return is_only_in(process, function); });
  }
  // Kills the process (-9) if it is still running: one that is ending keeps its exit code.
  static bool kill_running(pid_t process) {
    return look(process, /*kills=*/true, [] { return true; });
  }

 private:
  // Stops the process, and kills it or lets it continue; so it cannot end between the look and the
  // kill. False: the condition is not met, or the process was already ending.
  template <typename Condition>
  static bool look(pid_t process, bool kills, const Condition& condition) {
    if (ptrace(PTRACE_SEIZE, process, nullptr, nullptr) != 0) return false;
    int status = 0;
    if (ptrace(PTRACE_INTERRUPT, process, nullptr, nullptr) != 0 ||
        waitpid(process, &status, __WALL) != process || !WIFSTOPPED(status))
      return false;
    const bool is_met = condition();
    if (is_met && kills) {
      kill(process, SIGKILL);
      waitpid(process, &status, __WALL);  // its parent is notified only after its tracer
      return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    const bool is_signal = status >> 16 != PTRACE_EVENT_STOP;  // a signal that arrived meanwhile
    ptrace(PTRACE_DETACH, process, nullptr, is_signal ? WSTOPSIG(status) : 0);
    return is_met;
  }

  bool is_only_in(pid_t process, size_t function) const {
    return functions_of(process) == std::set<size_t>{function};
  }

  std::set<size_t> functions_of(pid_t process) const {
    std::set<size_t> found;
#if defined(__x86_64__)
    user_regs_struct registers{};
    const auto base = load_address(process);
    if (!base || ptrace(PTRACE_GETREGS, process, nullptr, &registers) != 0) return found;
    const int memory = open(("/proc/" + std::to_string(process) + "/mem").c_str(), O_RDONLY);
    std::vector<uint64_t> stack(kStackBytes / sizeof(uint64_t));
    const ssize_t bytes =
        pread(memory, stack.data(), kStackBytes, static_cast<off_t>(registers.rsp));
    close(memory);
    stack.resize(bytes > 0 ? static_cast<size_t>(bytes) / sizeof(uint64_t) : 0);
    stack.push_back(registers.rip);
    for (const uint64_t word : stack)
      for (const CodeRange& range : ranges_)
        if (word - *base >= range.begin && word - *base < range.end) found.insert(range.function);
#endif
    return found;
  }

  static constexpr size_t kStackBytes = 1 << 18;

  std::vector<CodeRange> ranges_;
};

}  // namespace tlt::tests
