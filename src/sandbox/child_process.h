// ChildProcess: a program that answers lines with lines, kept alive between requests: one at a time
// (ask), or many in flight (post, exchange).
//
// Owns       the process group, which is killed with it, and its descriptors. A watcher in the group
//            kills it when this process ends in any way, by SIGKILL too.
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
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::sandbox {

inline constexpr size_t kMaxLineBytes = 1 << 20;
inline constexpr size_t kStderrTailBytes = 400;

class ChildProcess {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Outcome {
    kAnswered,
    kEnded,  // before its line was complete
    kLate,
    kTooLong,  // more than kMaxLineBytes, or more than one line
    kRefused,  // by the watch
  };

  // Polled while waiting for an answer; false stops the wait.
  struct Watch {
    std::chrono::milliseconds interval;
    std::function<bool(pid_t)> may_continue;  // argument: the child
  };

  // Starts `sh -c command`; throws Error if it cannot create a process. Without the watcher the
  // program must end by itself when this process does.
  explicit ChildProcess(const std::string& command, bool has_watcher = true);
  // Closes the program's input, waits shortly for it to exit, then kills it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Writes `line`, which has no line break, and waits for one line. After any result but kAnswered
  // the child must not be used again.
  Outcome ask(const std::string& line, Clock::time_point deadline, std::string* answer,
              const Watch* watch = nullptr);

  // post() queues a line, without a line break. It and exchange() never wait: they write what the
  // program takes of the queued lines, and exchange() appends to `lines` what the program has
  // written. kEnded, kTooLong: the child must not be used again. Not to be mixed with ask().
  void post(const std::string& line);
  Outcome exchange(std::vector<std::string>* lines);

  // Waits until one of the children has written something or takes queued lines, or for `seconds`:
  // then it returns false.
  static bool wait_for_any(std::span<ChildProcess* const> children, double seconds);

  // Says that no line follows, so that it exits. The destructor does, too; a call for each of
  // several children lets them exit at the same time. No effect if it is closed.
  void close_input();

  // False if it has exited, or has written a line without a request.
  bool is_ready();

  // Whether lines sent to it are unread, or were when it exited.
  bool left_input_unread();

  // The end of its standard error, on one line.
  std::string last_words();

  // Describes how it exited, as in `ended with status 3`; kills it first if it is running.
  std::string end();

 private:
  void write_posted();
  size_t try_write(std::string_view text);  // number of bytes written
  bool read_some();                         // of the answer; false: no more
  void read_stderr();                       // what is available
  void wait_until(Clock::time_point deadline, bool to_write);
  void await_end();  // for a short time, from the end of its input
  void kill_group();
  std::optional<int> status(bool to_wait);

  pid_t group_ = -1;   // led by the watcher, or without one by the program; -1: killed
  int lifeline_ = -1;  // the watcher kills the group when this is closed; -1: no watcher
  pid_t pid_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
  std::optional<int> status_;
  std::optional<Clock::time_point> input_end_;
  bool has_output_ = true;
  bool has_lost_input_ = false;  // it exited before it had read everything
  std::string answer_;
  std::string posted_;  // and not written yet
  std::string stderr_tail_;
};

}  // namespace tlt::sandbox
