// Tracker: passes a run's metrics to one experiment tracker (W&B, MLflow …), whose Python package
// runs in a process of its own (tracker_program.h).
//
// Nothing here delays or ends a run: messages wait in a queue of limited bytes and are dropped if
// it is full; a package that raises an error loses that message; a process that ends or gives no
// answer turns the tracker off. The first loss is a warning, which says why; wait_for_end() warns of
// their number.
//
// Owns       its process, which ends with it, its thread and the queue.
// Not here   which trackers a run has, and what they are sent (trackers.h).
// Threading  one thread at a time calls; the process is spoken to by a thread of its own.
//
//   Tracker::check("wandb");                                       // InputError: not installed
//   Tracker tracker("wandb", {{"project", "tlt"}, {"name", "run"}, {"id", ""}, {"config", {}}});
//   if (tracker.wait_for_start(60s) == Tracker::State::kRunning) … tracker.id() …
//   tracker.send(R"({"log": {"step": 1, "actor/lr": 1e-06}})");
//   tracker.finish(/*exit_code=*/0);
//   tracker.wait_for_end(Clock::now() + 60s);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <thread>

#include "sandbox/child_process.h"

namespace tlt::tracker {

// The Python of the trackers: that of the environment variable TLT_PYTHON, or python3 of PATH.
std::string tracker_python();

struct TrackerLimits {
  // Of an answer. An HTTP client of a package tries again for minutes while its server restarts.
  std::chrono::milliseconds answer = std::chrono::minutes(5);
  size_t queue_bytes = size_t{16} << 20;  // about a thousand steps
};

class Tracker {
 public:
  using Clock = sandbox::ChildProcess::Clock;
  enum class State { kStarting, kRunning, kOff };

  // InputError: there is no Python, or it has no such package; what to type.
  static void check(const std::string& package);

  // Starts the process and the tracker's run. `start`: that request of the program, without the
  // package.
  Tracker(const std::string& package, nlohmann::ordered_json start, TrackerLimits limits = {});
  // Ends the process, whatever it does.
  ~Tracker();
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // The state when it has started or failed, or after this time. The caller tells the user why it
  // is off; later this class does.
  State wait_for_start(std::chrono::milliseconds time);
  State state() const;
  std::string fault() const;  // why it is off; empty: it is not
  std::string id() const;     // of the tracker's run; empty: not started
  std::string where() const;  // its URL or folder

  // Queues a line of tracker_program.h, or drops it. Never waits.
  void send(std::string line);

  // The last message.
  void finish(int exit_code);
  // Waits until all messages have arrived, or ends the process at the deadline; a warning if some
  // were lost. REQUIRES: finish().
  void wait_for_end(Clock::time_point deadline);

  const std::string& package() const { return package_; }
  int64_t lost() const;  // messages that have not arrived

 private:
  void run();
  std::optional<std::string> next();      // waits for a message; nullopt: no more
  bool deliver(const std::string& line);  // false: it is off
  void take_answer(const std::string& text);
  void lose(const std::string& why);  // one message. REQUIRES: mutex_ is held
  void lose_all();                    // and off. REQUIRES: mutex_ is held
  void turn_off(const std::string& why);
  // How the process ended or why it is given up; ends it.
  std::string describe(sandbox::ChildProcess::Outcome outcome);

  const std::string package_;
  const TrackerLimits limits_;
  sandbox::ChildProcess child_;  // used by thread_ alone

  mutable std::mutex mutex_;  // protects what follows
  std::condition_variable changed_;
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  State state_ = State::kStarting;
  std::string fault_, id_, where_;
  int64_t sent_ = 0, lost_ = 0;
  bool is_delivering_ = false;  // a message that is no longer in queue_
  bool is_awaited_ = true;      // the caller of wait_for_start() says why it is off
  bool has_finished_ = false;   // no message is added to queue_
  bool is_abandoned_ = false;   // the process is not waited for

  std::thread thread_;
};

}  // namespace tlt::tracker
