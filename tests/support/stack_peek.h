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
#include <cstdio>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tlt::tests {

class StackPeek {
 public:
  // Names as `nm -C` writes them, or a prefix of that.
  explicit StackPeek(const std::vector<std::string>& functions) {
    FILE* table = popen("nm -C -S --defined-only " TLT_PROGRAM, "r");
    char line[1 << 14];
    while (table && std::fgets(line, sizeof line, table)) {
      uint64_t begin = 0, size = 0;
      char kind = 0;
      int name = 0;
      if (std::sscanf(line, "%lx %lx %c %n", &begin, &size, &kind, &name) != 3) continue;
      for (size_t i = 0; i < functions.size(); ++i)
        if (std::string_view(line + name).starts_with(functions[i]))
          ranges_.push_back({begin, begin + size, i});
    }
    if (table) pclose(table);
  }

  bool can_look() const {
#if defined(__x86_64__)
    return !ranges_.empty();
#else
    return false;
#endif
  }

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

  struct Range {
    uint64_t begin, end;
    size_t function;
  };

  // Load address of the program in the process.
  static std::optional<uint64_t> base_of(pid_t process) {
    std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
    uint64_t begin = 0;
    std::string line;
    if (!std::getline(maps, line) || std::sscanf(line.c_str(), "%lx", &begin) != 1)
      return std::nullopt;
    return begin;
  }

  bool is_only_in(pid_t process, size_t function) const {
    return functions_of(process) == std::set<size_t>{function};
  }

  std::set<size_t> functions_of(pid_t process) const {
    std::set<size_t> found;
#if defined(__x86_64__)
    user_regs_struct registers{};
    const auto base = base_of(process);
    if (!base || ptrace(PTRACE_GETREGS, process, nullptr, &registers) != 0) return found;
    const int memory = open(("/proc/" + std::to_string(process) + "/mem").c_str(), O_RDONLY);
    std::vector<uint64_t> stack(kStackBytes / sizeof(uint64_t));
    const ssize_t bytes =
        pread(memory, stack.data(), kStackBytes, static_cast<off_t>(registers.rsp));
    close(memory);
    stack.resize(bytes > 0 ? static_cast<size_t>(bytes) / sizeof(uint64_t) : 0);
    stack.push_back(registers.rip);
    for (const uint64_t word : stack)
      for (const Range& range : ranges_)
        if (word - *base >= range.begin && word - *base < range.end) found.insert(range.function);
#endif
    return found;
  }

  static constexpr size_t kStackBytes = 1 << 18;

  std::vector<Range> ranges_;
};

}  // namespace tlt::tests
