// SPDX-License-Identifier: Apache-2.0
#include "reward/reward_pool.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace tlt::reward {

namespace {

struct Waiting {
  uint64_t id = 0;
  RewardJob job;
};

struct Running {
  uint64_t id = 0;
  std::string data_source;
  RewardPool::Clock::time_point deadline;
  RewardPool::Clock::time_point started;

  std::string limit() const {
    return check_internal::concat(std::chrono::duration<double>(deadline - started).count(),
                                  " seconds");
  }
  double seconds() const {
    return std::chrono::duration<double>(RewardPool::Clock::now() - started).count();
  }
};

}  // namespace

RewardInput RewardJob::input() const {
  return {.data_source = data_source,
          .response = response,
          .raw_response = raw_response,
          .ground_truth = ground_truth,
          .extra_info = extra_info.get(),
          .prompt = prompt,
          .messages = messages.get(),
          .response_ids = response_ids,
          .truncated = truncated,
          .response_tokens = response_tokens,
          .max_response_tokens = max_response_tokens,
          .episode = episode.get()};
}

// The state that the pool and its threads share. The threads are detached and hold it too, so a
// reward may return after the pool is gone. Every sample is in exactly one of: waiting, running,
// finished.
struct RewardPool::State {
  // Constant after construction.
  std::shared_ptr<const Reward> reward;
  std::string reward_name;
  Clock::duration timeout;
  int64_t threads = 1;

  std::mutex mutex;
  std::condition_variable work;     // a job waits, or closing
  std::condition_variable watch;    // the next deadline changed, or closing
  std::condition_variable settled;  // no job waits or runs, or a worker has exited

  // Protected by mutex.
  bool closing = false;
  std::deque<Waiting> waiting;
  std::map<uint64_t, Running> running;  // by ticket
  std::map<uint64_t, ScoredSample> finished;
  std::set<uint64_t> ids;  // of waiting, running and finished
  uint64_t next_ticket = 0;
  int64_t workers = 0;                           // threads that wait for a job or run one in time
  int64_t hung = 0;                              // threads whose job timed out
  std::optional<Clock::time_point> stuck_until;  // set while jobs wait and there are no workers
  RewardCounters counters;

  // REQUIRES for all: mutex is held.
  bool is_settled() const { return waiting.empty() && running.empty(); }
  void finish(ScoredSample sample);
  void fail(uint64_t id, RewardStatus status, const std::string& name, std::string message,
            double seconds);
  void drop_waiting(const std::string& message);
  std::vector<ScoredSample> fetch();
  void close();

  // The next deadline; nullopt: none.
  std::optional<Clock::time_point> next_deadline() const;

  // The running job with the earliest deadline; end(): none runs.
  std::map<uint64_t, Running>::const_iterator first_due() const {
    return std::ranges::min_element(running, {},
                                    [](const auto& one) { return one.second.deadline; });
  }
};

void RewardPool::State::finish(ScoredSample sample) {
  if (sample.status == RewardStatus::kScored) ++counters.scored;
  const uint64_t id = sample.id;
  finished.emplace(id, std::move(sample));
  if (is_settled()) settled.notify_all();
}

void RewardPool::State::fail(uint64_t id, RewardStatus status, const std::string& name,
                             std::string message, double seconds) {
  ++(status == RewardStatus::kLate ? counters.late : counters.failed);
  ++counters.errors[name];
  counters.first_error.try_emplace(name, message);
  finish({.id = id, .status = status, .error = std::move(message), .seconds = seconds});
}

void RewardPool::State::drop_waiting(const std::string& message) {
  while (!waiting.empty()) {
    const uint64_t id = waiting.front().id;
    waiting.pop_front();
    fail(id, RewardStatus::kLate, reward_name, message, /*seconds=*/0);
  }
}

std::vector<ScoredSample> RewardPool::State::fetch() {
  std::vector<ScoredSample> samples;
  samples.reserve(finished.size());
  for (auto& [id, sample] : finished) {
    ids.erase(id);
    samples.push_back(std::move(sample));
  }
  finished.clear();
  return samples;
}

void RewardPool::State::close() {
  closing = true;
  waiting.clear();
  work.notify_all();
  watch.notify_all();
}

std::optional<RewardPool::Clock::time_point> RewardPool::State::next_deadline() const {
  if (running.empty()) return stuck_until;
  return first_due()->second.deadline;  // workers > 0, so nothing is stuck
}

// The functions of the threads. Static, because threads outlive the pool: they only use the state.
class RewardPool::Workers {
 public:
  using Shared = std::shared_ptr<State>;
  using Lock = std::unique_lock<std::mutex>;

  // REQUIRES: mutex is held.
  static void start_one(const Shared& state) {
    std::thread([state] { work(*state); }).detach();
    ++state->workers;
  }

  static void watch(const Shared& state) {
    Lock lock(state->mutex);
    while (!state->closing) {
      if (const auto deadline = state->next_deadline()) {
        state->watch.wait_until(lock, *deadline);
      } else {
        state->watch.wait(lock);
      }
      give_up_late(state, Clock::now(), std::nullopt);
      drop_stuck(*state);
    }
  }

  // Times out running jobs whose deadline is `now` or earlier; without a message, each for its own
  // limit. REQUIRES: mutex is held.
  static void give_up_late(const Shared& state, Clock::time_point now,
                           const std::optional<std::string>& message) {
    while (!state->running.empty() && state->first_due()->second.deadline <= now) {
      const auto due = state->first_due();
      const Running late = due->second;
      state->running.erase(due);
      --state->workers;
      ++state->hung;
      const std::string row =
          late.data_source.empty() ? "" : " on a row of data source `" + late.data_source + "`";
      state->fail(late.id, RewardStatus::kLate, state->reward_name,
                  message.value_or("ran longer than " + late.limit()) + row, late.seconds());
      if (state->hung <= kMaxHungThreads) replace(state);
    }
  }

 private:
  static void work(State& state) {
    Lock lock(state.mutex);
    while (true) {
      state.work.wait(lock, [&] { return state.closing || !state.waiting.empty(); });
      if (state.closing) break;
      const Waiting next = std::move(state.waiting.front());
      state.waiting.pop_front();
      const uint64_t ticket = state.next_ticket++;
      const Clock::time_point now = Clock::now();
      const double factor = state.reward->wall_factor(next.job.data_source);
      const auto allowed = std::chrono::duration_cast<Clock::duration>(factor * state.timeout);
      const Running running{next.id, next.job.data_source, now + allowed, now};
      state.running[ticket] = running;
      state.watch.notify_one();
      lock.unlock();
      Outcome outcome = score(*state.reward, state.reward_name, next.job);
      lock.lock();
      if (state.running.erase(ticket) > 0) {
        settle(state, running, std::move(outcome));
      } else if (!try_return(state)) {
        return;
      }
    }
    --state.workers;
    state.settled.notify_all();
  }

  struct Outcome {
    RewardResult result = {};
    std::optional<std::string> error = {};
    std::string reward = {};  // that threw
  };

  // The part that may hang. Does not throw.
  static Outcome score(const Reward& reward, const std::string& name, const RewardJob& job) {
    try {
      RewardResult result = reward.score(job.input());
      TLT_CHECK(std::isfinite(result.score), "the score is ", result.score);
      return {.result = std::move(result)};
    } catch (const RewardError& error) {
      return {.error = error.what(), .reward = error.reward()};
    } catch (const std::exception& error) {
      return {.error = error.what(), .reward = name};
    } catch (...) {
      return {.error = "threw something that is not a std::exception", .reward = name};
    }
  }

  static void settle(State& state, const Running& ended, Outcome outcome) {
    if (outcome.error) {
      state.fail(ended.id, RewardStatus::kFailed, outcome.reward, std::move(*outcome.error),
                 ended.seconds());
    } else {
      state.finish({.id = ended.id,
                    .status = RewardStatus::kScored,
                    .result = std::move(outcome.result),
                    .seconds = ended.seconds()});
    }
  }

  // A thread whose job timed out has returned: false if it has been replaced.
  static bool try_return(State& state) {
    --state.hung;
    if (state.closing || state.workers == state.threads) return false;
    ++state.workers;
    state.stuck_until.reset();
    return true;
  }

  static void replace(const Shared& state) {
    try {
      start_one(state);
    } catch (const std::system_error&) {
      // The system has no thread: treat it as kMaxHungThreads; a hung one may still return.
    }
  }

  static void drop_stuck(State& state) {
    if (state.workers > 0 || state.waiting.empty()) {
      state.stuck_until.reset();
    } else if (!state.stuck_until) {
      state.stuck_until = Clock::now() + state.timeout;
    } else if (*state.stuck_until <= Clock::now()) {
      state.drop_waiting("never ran: every thread hangs in a reward");
      state.stuck_until.reset();
    }
  }
};

RewardPool::RewardPool(std::shared_ptr<const Reward> reward, const RewardOptions& options)
    : state_(std::make_shared<State>()) {
  state_->reward_name = reward->name();
  state_->reward = std::move(reward);
  state_->timeout = to_duration(options.timeout_seconds);
  state_->threads = options.threads;
  const std::lock_guard lock(state_->mutex);
  try {
    std::thread([state = state_] { Workers::watch(state); }).detach();
    for (int64_t i = 0; i < options.threads; ++i) Workers::start_one(state_);
  } catch (const std::system_error&) {
    state_->close();  // those already started must not wait forever
    throw;
  }
}

RewardPool::~RewardPool() {
  std::unique_lock lock(state_->mutex);
  state_->close();
  state_->settled.wait_for(lock, to_duration(kCloseSeconds), [&] { return state_->workers == 0; });
}

void RewardPool::submit(uint64_t id, RewardJob job) {
  const std::lock_guard lock(state_->mutex);
  TLT_CHECK(state_->ids.insert(id).second, "sample ", id, " is already in the pool");
  state_->waiting.push_back({id, std::move(job)});
  state_->work.notify_one();
  if (state_->workers == 0) state_->watch.notify_one();
}

std::vector<ScoredSample> RewardPool::poll() {
  const std::lock_guard lock(state_->mutex);
  return state_->fetch();
}

std::vector<ScoredSample> RewardPool::wait_all(Clock::time_point deadline) {
  std::unique_lock lock(state_->mutex);
  if (!state_->settled.wait_until(lock, deadline, [&] { return state_->is_settled(); })) {
    const std::string message = "was not scored when the scores were needed";
    state_->drop_waiting(message);  // before that, or a replaced thread would start one of them
    Workers::give_up_late(state_, Clock::time_point::max(), message);
  }
  return state_->fetch();
}

RewardCounters RewardPool::counters() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counters;
}

}  // namespace tlt::reward
