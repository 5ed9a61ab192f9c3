// Breakpoint: stops a running process at one of its calls of a function, however busy the machine
// is, without its cooperation: to send it a signal there, or to do something else.
//
// Not here   functions that other threads than the main one call: these would end the process.
//            Machines other than x86-64, and programs without symbols: can_set() is false.
//   const Breakpoint moment({{"tlt::train::Trainer::update(", 1},
//                            {"tlt::train::Optimizer::step(", 3}});  // of that update
//   ASSERT_TRUE(moment.signal_at(worker, SIGTERM));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/program_code.h"

namespace tlt::tests {

// The count-th call of a function from now on, the first being 1.
struct Call {
  const char* function;  // as `nm -C` writes it, or a prefix of that; all functions with it count
  int count = 1;
};

inline constexpr char kNoBreakpoint[] = "no symbols of the program, or another machine";
inline constexpr char kUpdate[] = "tlt::train::Trainer::update(";  // once a step; of a critic too

class Breakpoint {
 public:
  // Each call is counted from the one before it.
  Breakpoint(std::initializer_list<Call> calls) {
    for (const Call& call : calls) moments_.push_back({code_of({call.function}), call.count});
  }

  bool can_set() const {
    return kCanTrace &&
           std::ranges::none_of(moments_, [](const Moment& m) { return m.entries.empty(); });
  }

  // Waits for the last call and does the action before the function's first instruction, while the
  // main thread is stopped. False: the process ended before, or two minutes have passed.
  bool at(pid_t process, const std::function<void()>& action) const {
    if (!is_program(process)) return false;
    bool is_there = false;
#if defined(__x86_64__)
    Traced traced(process);
    is_there = traced.stop() && std::ranges::all_of(moments_, [&](const Moment& moment) {
                 return traced.run_to(moment);
               });
    if (is_there) action();
    traced.release();
#endif
    return is_there;
  }
  // The same with a signal to the process.
  bool signal_at(pid_t process, int signal) const {
    return at(process, [=] { kill(process, signal); });
  }

 private:
  static constexpr std::chrono::seconds kLimit{120};

  struct Moment {
    std::vector<CodeRange> entries;
    int count;
  };

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
    explicit Traced(pid_t process) : process_(process) {}

    // False: there is no such process, or it is ending.
    bool stop() {
      int status = 0;
      return ptrace(PTRACE_SEIZE, process_, nullptr, nullptr) == 0 &&
             ptrace(PTRACE_INTERRUPT, process_, nullptr, nullptr) == 0 &&
             waitpid(process_, &status, __WALL) == process_ && WIFSTOPPED(status);
    }
    // REQUIRES: stopped. True: stopped again, before the first instruction of that call.
    bool run_to(const Moment& moment) {
      bool is_there = true;
      for (int done = 0; done < moment.count && is_there; ++done)
        is_there = step_over_entry() && run_to_entry(moment.entries);
      return is_there;
    }
    // REQUIRES: stopped, or ended. The parent of one that ended is told only after its tracer.
    void release() {
      if (ptrace(PTRACE_DETACH, process_, nullptr, nullptr) != 0)
        waitpid(process_, nullptr, __WALL);
    }

   private:
    static constexpr long kInstruction = 0xCC;  // int3

    bool step_over_entry() {
      return std::exchange(is_at_entry_, false) ? run(PTRACE_SINGLESTEP) : true;
    }
    bool run_to_entry(const std::vector<CodeRange>& entries) {
      base_ = load_address(process_).value_or(0);
      set_breakpoints(entries);
      while (run(PTRACE_CONT)) {
        if (!is_at_breakpoint()) continue;
        remove_breakpoints();
        return is_at_entry_ = true;
      }
      return false;
    }
    void* address_of(const CodeRange& entry) const {
      return reinterpret_cast<void*>(base_ + entry.begin);
    }
    void set_breakpoints(const std::vector<CodeRange>& entries) {
      entries_ = entries;
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
    bool is_at_entry_ = false;  // before the first instruction of a function
    std::vector<CodeRange> entries_;
    uint64_t base_ = 0;
    std::vector<long> words_;  // of the program, where the breakpoints are
    std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + kLimit;
  };
#endif

  std::vector<Moment> moments_;
};

}  // namespace tlt::tests
