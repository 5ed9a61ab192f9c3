// EnvironmentPool: the programs of environment.command, each with many episodes at a time.
//
// One JSON object a line. The pool writes
//   {"id": 1, "call": "reset", "episode": 7, "seed": 5, "row": {…}}
//   {"id": 2, "call": "step", "episode": 7, "turn": 1, "message": {…}, "tool_calls": […]}
//   {"call": "close", "episode": 7}                    no answer; after a step that is not the last
// and each program answers calls in any order,
//   {"id": 1, "messages": […]}                         reset; messages may be missing
//   {"id": 1, "prompt": […]}                           reset; in place of the row's messages
//   {"id": 1, "prompt_token_ids": […]}                 reset; in place of the row's prompt
//   {"id": 2, "messages": […], "reward": 0.5, "done": false, "extra": {"name": 1}}
//   {"id": 2, "error": "why"}                          fails the episode
// (docs/environments.md). A program that has answered with "max_batch": n gets up to n calls as a
// list in one line, and may answer with lists. An answer that cannot be used, or is late, fails its
// episode. A program that exits, writes what answers no open call, or answers nothing for the time
// of a call is ended: all its episodes fail. It is started again for the next episode.
//
// Owns       the programs, which end with it, and the calls that have no answer yet.
// Not here   turns as tokens (turn_renderer.h); what an episode is in a run (rl/episodes.h).
// Threading  engine thread only. No call waits for a program, but check() and wait().
//
//   EnvironmentPool pool(options);
//   const int64_t episode = pool.open(row, seed);
//   for (EnvironmentAnswer& answer : pool.poll()) …
//   pool.step(episode, {.message = message, .tool_calls = calls, .turn = 1});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "environment/environment_options.h"
#include "sandbox/child_process.h"

namespace tlt::environment {

// An answer to reset or step; the episode is closed if it has a fault or is done.
struct EnvironmentAnswer {
  int64_t episode = 0;
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json prompt = {};          // messages in place of the row's; null: none
  std::vector<int32_t> prompt_token_ids = {};  // tokens in place of the row's; empty: none
  double reward = 0;
  bool is_done = false;
  std::map<std::string, double> extras = {};
  std::string fault = {};  // why the episode failed; empty: it did not
};

struct EnvironmentTurn {
  nlohmann::ordered_json message;     // of the assistant
  nlohmann::ordered_json tool_calls;  // a list of {"id", "name", "arguments"}
  int64_t turn = 1;
};

class EnvironmentPool {
 public:
  using Clock = sandbox::ChildProcess::Clock;

  // REQUIRES: options.check() passes, options.is_on(). `now`: for tests of time limits.
  explicit EnvironmentPool(const EnvironmentOptions& options,
                           std::function<Clock::time_point()> now = Clock::now);
  ~EnvironmentPool();

  // Starts a program and has it reset an episode of this row. InputError: it did not answer.
  void check(const nlohmann::ordered_json& row);

  // Begins an episode by the call reset. Returns its id.
  int64_t open(const nlohmann::ordered_json& row, uint32_t seed);
  // REQUIRES: the episode is open and has no unanswered call.
  void step(int64_t episode, const EnvironmentTurn& turn);
  // Ends an episode; its answer, if one is missing, is ignored. No effect if it is closed.
  void close(int64_t episode);
  void close_all();
  // Writes the calls so far that wait for others to share a line with. poll() and wait() do it, too.
  void flush();

  // What the programs have answered since the last call, in the order of their answers.
  std::vector<EnvironmentAnswer> poll();
  // Waits until a program writes something, at most so long; false: none has.
  bool wait(double seconds);

 private:
  using Json = nlohmann::ordered_json;
  struct Call {
    int64_t episode = 0;  // kClosed: its answer is ignored
    Clock::time_point sent;
  };
  struct Program {
    std::unique_ptr<sandbox::ChildProcess> child;  // null: not running
    std::map<int64_t, Call> calls;                 // unanswered, by id
    std::set<int64_t> episodes;                    // open
    Clock::time_point last_answer;
    int64_t max_batch = 1;               // calls that it takes in one line
    std::vector<std::string> unwritten;  // calls that wait for others, in order
  };
  static constexpr int64_t kClosed = -1;

  void send(Program& program, int64_t episode, const Json& call);
  static void post(Program& program, const Json& call);
  static void flush(Program& program);
  void read(Program& program);
  // False: the line, or the answer, ends the program.
  bool try_take_line(Program& program, const std::string& line);
  bool try_take(Program& program, const Json& answer);
  void take(Program& program, int64_t episode, const Json& answer);
  void check_time(Program& program);
  void fail(Program& program, int64_t episode, const std::string& what);
  // Ends the program, and with it its episodes.
  void end(Program& program, const std::string& what);
  void forget(Program& program, int64_t episode);
  std::string named(const std::string& what) const;

  const EnvironmentOptions options_;
  const std::function<Clock::time_point()> now_;
  const std::string command_;  // for the shell
  const Clock::duration timeout_;
  std::vector<Program> programs_;
  std::map<int64_t, size_t> program_of_;  // by open episode
  std::vector<EnvironmentAnswer> answers_;
  int64_t last_id_ = 0, last_episode_ = 0;
};

}  // namespace tlt::environment
