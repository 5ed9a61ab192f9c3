// Sessions: the clients of the Tinker API, each of which sends heartbeats.
//
// A session ends when its client says so, or when it has been silent for long at the time another
// one begins. What belongs to it is dropped by `ended`.
//
// Owns       when each session was last heard of.
// Threading  any thread; `ended` is called by the one that ends the session, without the lock.
// Bound      kMaxSessions.
//
//   Sessions sessions({}, [&](const std::string& id) { samplers.forget_session(id); });
//   const std::string id = sessions.create();
//   sessions.touch(id);  // a heartbeat, or any request
//   sessions.end(id);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tlt::tinker {

class Sessions {
 public:
  struct Options {
    // The client sends a heartbeat every 10 s. One that has not for this long is gone: another one
    // may train, and the session ends if there are too many.
    double silent_seconds = 60;
    // After this long it ends even if there is room.
    double forgotten_seconds = 3600;
    const Clock* clock = &steady_clock();
  };
  static constexpr size_t kMaxSessions = 1024;

  using Ended = std::function<void(const std::string& id)>;
  Sessions(const Options& options, Ended ended);

  // Ends silent ones, then begins one. ApiError (429): there are too many.
  std::string create();
  // ApiError (410), which ends the client's heartbeats: there is no such session.
  void touch(const std::string& id);
  // Whether its client is gone, or it has ended.
  bool is_silent(const std::string& id) const;
  // ApiError (410) as touch().
  void end(const std::string& id);

 private:
  std::vector<std::string> take_silent();

  const Options options_;
  const Ended ended_;
  const std::string prefix_;  // random: ids of another start of the server differ

  mutable std::mutex mutex_;  // guards all below
  std::map<std::string, Stopwatch> unseen_;
  int64_t created_ = 0;
};

}  // namespace tlt::tinker
