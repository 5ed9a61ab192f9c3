// SPDX-License-Identifier: Apache-2.0
#include "tracker/tracker.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/log.h"
#include "base/sentence.h"
#include "base/start_thread.h"
#include "tracker/tracker_program.h"

namespace tlt::tracker {

namespace {

using sandbox::ChildProcess;
using Json = nlohmann::ordered_json;
using Outcome = ChildProcess::Outcome;

constexpr std::chrono::seconds kFindTime(60);          // for Python to start, on a loaded machine
constexpr std::chrono::seconds kLook(1);               // between two looks at an idle process
constexpr std::chrono::milliseconds kAbandonLook(20);  // between two looks whether to wait further

std::string command_of() {
  return "exec " + shell_word(tracker_python()) + " -c " + shell_word(kTrackerProgram);
}

// The string of an answer; empty: it has none.
std::string text_at(const Json& answer, const char* name) {
  const auto found = answer.find(name);
  return found != answer.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string tracker_python() {
  const char* asked = std::getenv("TLT_PYTHON");
  return asked != nullptr && *asked != '\0' ? asked : "python3";
}

void Tracker::check(const std::string& package) {
  ChildProcess child(command_of());
  std::string line;
  const Outcome outcome =
      child.ask(Json{{"find", package}}.dump(), Clock::now() + kFindTime, &line);
  if (outcome != Outcome::kAnswered) {
    const std::string how = outcome == Outcome::kLate
                                ? check_internal::concat("gave no answer within ",
                                                         kFindTime.count(), " seconds")
                                : child.end(),
                      words = child.last_words();
    throw InputError(
        check_internal::concat("trainer.logger has ", package, ", and its Python `",
                               tracker_python(), "` ", how, words.empty() ? "" : " (" + words + ")",
                               "; set TLT_PYTHON to a Python 3 that has the package, or leave ",
                               package, " out of trainer.logger"));
  }
  const Json answer = parse_limited_json(line);
  if (answer.is_object() && answer.value("found", false)) return;
  const std::string python = answer.is_object() ? text_at(answer, "python") : tracker_python();
  throw InputError(check_internal::concat("trainer.logger has ", package, ", and ", python,
                                          " has no package ", package, "; type ",
                                          shell_word(python), " -m pip install ", package,
                                          ", or set TLT_PYTHON to the Python that has it"));
}

Tracker::Tracker(const std::string& package, Json start, TrackerLimits limits)
    : package_(package), limits_(limits), child_(command_of()) {
  start["package"] = package;
  queue_.push_back(
      Json{{"start", std::move(start)}}.dump(-1, ' ', false, Json::error_handler_t::replace));
  queued_bytes_ = queue_.front().size();
  thread_ = start_thread([this] { run(); });
}

Tracker::~Tracker() {
  {
    const std::lock_guard lock(mutex_);
    has_finished_ = is_abandoned_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Tracker::State Tracker::wait_for_start(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return state_ != State::kStarting; });
  is_awaited_ = false;
  return state_;
}

Tracker::State Tracker::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}
std::string Tracker::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}
std::string Tracker::id() const {
  const std::lock_guard lock(mutex_);
  return id_;
}
std::string Tracker::where() const {
  const std::lock_guard lock(mutex_);
  return where_;
}
int64_t Tracker::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void Tracker::send(std::string line) {
  {
    const std::lock_guard lock(mutex_);
    ++sent_;
    if (state_ == State::kOff) {
      ++lost_;
    } else if (queued_bytes_ + line.size() > limits_.queue_bytes) {
      lose("its queue is full");
    } else {
      queued_bytes_ += line.size();
      queue_.push_back(std::move(line));
    }
  }
  changed_.notify_all();
}

void Tracker::finish(int exit_code) {
  send(Json{{"finish", exit_code}}.dump());
  {
    const std::lock_guard lock(mutex_);
    has_finished_ = true;
  }
  changed_.notify_all();
}

void Tracker::wait_for_end(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  const bool is_done = changed_.wait_until(lock, deadline, [this] {
    return state_ == State::kOff || (queue_.empty() && !is_delivering_);
  });
  if (!is_done) {
    is_abandoned_ = true;  // ends deliver()
    lose_all();
    fault_ = "was still writing at the end of the run";
  }
  if (lost_ > 0)
    log_warning("{}: {} of {} messages did not arrive{}; the run's folder has all metrics",
                package_, lost_, sent_, fault_.empty() ? "" : " (it " + fault_ + ")");
  lock.unlock();
  changed_.notify_all();
}

void Tracker::run() {
  try {
    while (const std::optional<std::string> line = next())
      if (!deliver(*line)) return;
  } catch (const std::exception& error) {
    turn_off(error.what());
  }
}

// Reads what the package prints, too: else it would wait for a reader.
std::optional<std::string> Tracker::next() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLook, [this] { return !queue_.empty() || has_finished_; });
      if (is_abandoned_ || (queue_.empty() && has_finished_)) return std::nullopt;
      if (!queue_.empty()) {
        std::string line = std::move(queue_.front());
        queue_.pop_front();
        queued_bytes_ -= line.size();
        is_delivering_ = true;
        return line;
      }
    }
    if (!child_.is_ready()) {
      turn_off(describe(Outcome::kEnded));
      return std::nullopt;
    }
  }
}

bool Tracker::deliver(const std::string& line) {
  const ChildProcess::Watch watch{.interval = kAbandonLook, .may_continue = [this](pid_t) {
                                    const std::lock_guard lock(mutex_);
                                    return !is_abandoned_;
                                  }};
  std::string text;
  const Outcome outcome = child_.ask(line, Clock::now() + limits_.answer, &text, &watch);
  if (outcome == Outcome::kAnswered)
    take_answer(text);
  else if (outcome != Outcome::kRefused)
    turn_off(describe(outcome));
  {
    const std::lock_guard lock(mutex_);
    is_delivering_ = false;
  }
  changed_.notify_all();
  return outcome == Outcome::kAnswered && state() != State::kOff;
}

void Tracker::take_answer(const std::string& text) {
  const Json answer = parse_limited_json(text);
  const std::string error = answer.is_object() ? text_at(answer, "error") : "no JSON object";
  std::unique_lock lock(mutex_);
  if (state_ != State::kStarting) {
    if (!error.empty()) lose(error);
  } else if (error.empty()) {
    state_ = State::kRunning;
    id_ = text_at(answer, "id");
    where_ = text_at(answer, "where");
  } else {
    lock.unlock();
    turn_off("did not start: " + one_sentence(error));
  }
}

void Tracker::lose(const std::string& why) {
  if (++lost_ == 1)
    log_warning("{}: a message was lost ({}); the run continues, and its folder has all metrics",
                package_, one_sentence(why));
}

void Tracker::lose_all() {
  const bool is_message_lost = is_delivering_ && state_ == State::kRunning;  // not the start
  const auto messages = static_cast<int64_t>(queue_.size()) + (is_message_lost ? 1 : 0);
  const bool has_start = state_ == State::kStarting && !is_delivering_;  // in the queue
  lost_ += messages - (has_start ? 1 : 0);
  queue_.clear();
  state_ = State::kOff;
}

void Tracker::turn_off(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    lose_all();
    fault_ = why;
    if (!is_awaited_)
      log_warning("{} {}; the run continues without it, and its folder has all metrics", package_,
                  why);
  }
  changed_.notify_all();
}

std::string Tracker::describe(Outcome outcome) {
  const bool is_late = outcome == Outcome::kLate;
  const std::string how = child_.end(), words = child_.last_words();
  const double seconds = std::chrono::duration<double>(limits_.answer).count();
  return check_internal::concat(
      is_late ? check_internal::concat("gave no answer within ", seconds, " seconds") : how,
      words.empty() ? "" : "; its standard error ends in: " + one_sentence(words));
}

}  // namespace tlt::tracker
