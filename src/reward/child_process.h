// ChildProcess: a program that answers lines with lines, kept alive between them.
//
// Owns       the process group, which is killed with it, and three descriptors.
// Not here   what the lines say (command.h).
// Threading  one thread at a time.
//
//   ChildProcess child("python3 my_scores.py");
//   std::string answer;
//   if (child.ask("{…}", Clock::now() + 5s, &answer) != ChildProcess::Outcome::kAnswered) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace tlt::reward {

inline constexpr size_t kMaxAnswerBytes = 1 << 20;
inline constexpr size_t kStderrTailBytes = 400;

class ChildProcess {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Outcome {
    kAnswered,
    kEnded,  // before its line was complete
    kLate,
    kTooLong,  // more than kMaxAnswerBytes, or more than one line
    kRefused,  // by the watch
  };

  // Looked at again and again while an answer is awaited; false: it is not to go on.
  struct Watch {
    std::chrono::milliseconds interval;
    std::function<bool(pid_t)> goes_on;  // of the child
  };

  // Starts `sh -c command`; throws Error if no process is to be had.
  explicit ChildProcess(const std::string& command);
  // Closes the program's input, gives it a moment to end by itself, then kills it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Writes `line`, which has no line break, and waits for one line. After anything but kAnswered
  // the child is of no further use.
  Outcome ask(const std::string& line, Clock::time_point deadline, std::string* answer,
              const Watch* watch = nullptr);

  // False: it has ended, or has written what nobody asked for.
  bool is_ready();

  // Whether lines it was sent wait for it still, or waited when it ended.
  bool left_input_unread();

  // What it last wrote to its standard error, on one line.
  std::string last_words();

  // How it ended, as in `ended with status 3`; kills it first if it has not.
  std::string end();

 private:
  bool read_some();    // of the answer; false: there is no more
  void read_stderr();  // what is there now
  void wait_until(Clock::time_point deadline, bool to_write);
  void await_end();  // for a moment
  void close_input();
  std::optional<int> status(bool to_wait);

  pid_t pid_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
  std::optional<int> status_;
  bool has_output_ = true;
  bool has_lost_input_ = false;  // it ended before it had read everything
  std::string answer_;
  std::string stderr_tail_;
};

}  // namespace tlt::reward
