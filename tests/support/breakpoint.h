// Breakpoint: sends a running process a signal at one of its calls of a function, however busy the
// machine is, without its cooperation.
//
// Not here   functions that other threads than the main one call: these would end the process.
//            Machines other than x86-64, and programs without symbols: can_set() is false.
//   const Breakpoint step("tlt::train::Optimizer::step(");
//   ASSERT_TRUE(step.signal_at(worker, /*call=*/3, SIGTERM));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/support/program_code.h"

namespace tlt::tests {

class Breakpoint {
 public:
  // Name as `nm -C` writes it, or a prefix of that; all functions with it count.
  explicit Breakpoint(const std::string& function) : entries_(code_of({function})) {}

  bool can_set() const { return kCanTrace && !entries_.empty(); }

  // Waits for the given call from now on, the first being 1, and sends the signal before the
  // function's first instruction. False: the process ended before, or a minute has passed.
  bool signal_at(pid_t process, int call, int signal) const {
    if (!is_program(process)) return false;
    bool is_there = false;
#if defined(__x86_64__)
    Traced traced(process, entries_);
    if (!traced.stop()) return false;
    is_there = traced.run_to_entry();
    for (int done = 1; done < call && is_there; ++done)
      is_there = traced.step_over_entry() && traced.run_to_entry();
    if (is_there) kill(process, signal);
    traced.release();
#endif
    return is_there;
  }

 private:
  static constexpr std::chrono::seconds kLimit{60};

  // A child executes the program only some time after its start.
  static bool is_program(pid_t process) {
    const std::string file = "/proc/" + std::to_string(process) + "/exe";
    const auto end = std::chrono::steady_clock::now() + kLimit;
    for (std::error_code error; std::chrono::steady_clock::now() < end;) {
      if (std::filesystem::equivalent(file, TLT_PROGRAM, error)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

#if defined(__x86_64__)
  // A process whose main thread is traced; the functions' first bytes are breakpoints while it runs.
  class Traced {
   public:
    Traced(pid_t process, const std::vector<CodeRange>& entries)
        : process_(process), entries_(entries) {}

    // False: there is no such process, or it is ending.
    bool stop() {
      int status = 0;
      return ptrace(PTRACE_SEIZE, process_, nullptr, nullptr) == 0 &&
             ptrace(PTRACE_INTERRUPT, process_, nullptr, nullptr) == 0 &&
             waitpid(process_, &status, __WALL) == process_ && WIFSTOPPED(status);
    }
    // REQUIRES: stopped. True: stopped before the first instruction of one of the functions.
    bool run_to_entry() {
      base_ = load_address(process_).value_or(0);
      set_breakpoints();
      while (run(PTRACE_CONT)) {
        if (!is_at_breakpoint()) continue;
        remove_breakpoints();
        return true;
      }
      return false;
    }
    // REQUIRES: run_to_entry() was true.
    bool step_over_entry() { return run(PTRACE_SINGLESTEP); }
    // REQUIRES: stopped, or ended.
    void release() { ptrace(PTRACE_DETACH, process_, nullptr, nullptr); }

   private:
    static constexpr long kInstruction = 0xCC;  // int3

    void* address_of(const CodeRange& entry) const {
      return reinterpret_cast<void*>(base_ + entry.begin);
    }
    void set_breakpoints() {
      words_.clear();
      for (const CodeRange& entry : entries_) {
        words_.push_back(ptrace(PTRACE_PEEKTEXT, process_, address_of(entry), nullptr));
        ptrace(PTRACE_POKETEXT, process_, address_of(entry),
               (words_.back() & ~0xFFL) | kInstruction);
      }
    }
    void remove_breakpoints() {
      for (size_t i = 0; i < entries_.size(); ++i)
        ptrace(PTRACE_POKETEXT, process_, address_of(entries_[i]), words_[i]);
    }
    // Whether it has just executed a breakpoint; it is then before the instruction of the program.
    bool is_at_breakpoint() {
      user_regs_struct registers{};
      ptrace(PTRACE_GETREGS, process_, nullptr, &registers);
      for (const CodeRange& entry : entries_) {
        if (registers.rip != base_ + entry.begin + 1) continue;
        --registers.rip;
        return ptrace(PTRACE_SETREGS, process_, nullptr, &registers) == 0;
      }
      return false;
    }
    // To its next SIGTRAP; other signals reach it. False: it has ended, or the time is over.
    bool run(__ptrace_request how) {
      int signal = 0;
      while (signal >= 0 && signal != SIGTRAP) {
        ptrace(how, process_, nullptr, signal);
        signal = wait();
      }
      return signal == SIGTRAP;
    }
    // The signal it has stopped for, 0 for other stops; -1: it has ended, or the time is over.
    int wait() {
      int status = 0;
      while (waitpid(process_, &status, __WALL | WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > end_) return give_up();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (!WIFSTOPPED(status)) return -1;
      return status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(status);
    }
    int give_up() {
      int status = 0;
      ptrace(PTRACE_INTERRUPT, process_, nullptr, nullptr);
      waitpid(process_, &status, __WALL);
      remove_breakpoints();
      return -1;
    }

    pid_t process_;
    const std::vector<CodeRange>& entries_;
    uint64_t base_ = 0;
    std::vector<long> words_;  // of the program, where the breakpoints are
    std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + kLimit;
  };
#endif

  std::vector<CodeRange> entries_;
};

}  // namespace tlt::tests
