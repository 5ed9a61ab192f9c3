// SPDX-License-Identifier: Apache-2.0
#include "tinker/work_queue.h"

#include <chrono>

#include "base/start_thread.h"
#include "serve/api_error.h"

namespace tlt::tinker {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr size_t kMaxJobs = 16'384;
constexpr double kGapSeconds = 120;
constexpr auto kLookInterval = std::chrono::seconds(1);

constexpr const char* kStopping = "the server is stopping";

}  // namespace

WorkQueue::WorkQueue() : thread_(start_thread([this] { run(); })) {}

// is_next: it can run now, so there must be room for it however much waits for it, and whatever its
// size: else it would be refused for ever.
void WorkQueue::check_room(const Job& job, bool is_next) const {
  if (is_closed_) throw serve::unavailable(kStopping);
  if (is_next && jobs_.empty()) return;
  if (bytes_ + job.bytes > kMaxBytes || jobs_.size() + held_.size() >= kMaxJobs)
    throw serve::too_many_requests("too many requests wait; retrieve some results first");
}

void WorkQueue::push(Job job) {
  const std::lock_guard lock(mutex_);
  check_room(job, /*is_next=*/held_.empty());
  bytes_ += job.bytes;
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void WorkQueue::begin_model(const std::string& id) {
  const std::lock_guard lock(mutex_);
  fail_held("the session of this model has ended");
  model_ = id;
  next_ = 1;
}

int64_t WorkQueue::next_id(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  if (model != model_) return 1;
  return held_.empty() ? next_ : held_.rbegin()->first + 1;
}

void WorkQueue::push_in_order(const std::string& model, int64_t sequence_id, Job job) {
  const std::lock_guard lock(mutex_);
  check_room(job, /*is_next=*/sequence_id == next_);
  if (model != model_ || model.empty())
    throw serve::bad_request("the session of model " + model + " has ended", "model_id");
  if (sequence_id < next_ || sequence_id > next_ + static_cast<int64_t>(kMaxJobs) ||
      held_.contains(sequence_id))
    throw serve::bad_request(
        "seq_id is " + std::to_string(sequence_id) + "; the next one is " + std::to_string(next_),
        "seq_id");
  bytes_ += job.bytes;
  held_.emplace(sequence_id, Held{.job = std::move(job)});
  for (; !held_.empty() && held_.begin()->first == next_; ++next_) {
    jobs_.push_back(std::move(held_.begin()->second.job));
    held_.erase(held_.begin());
  }
  changed_.notify_all();
}

// REQUIRES: the lock.
void WorkQueue::fail_held(const std::string& why) {
  for (auto& [id, held] : held_) {
    bytes_ -= held.job.bytes;
    next_ = id + 1;
    held.job.fail(why);
  }
  held_.clear();
}

void WorkQueue::fail_after_gap() {
  if (!held_.empty() && held_.begin()->second.since.seconds() > kGapSeconds)
    fail_held("the request with seq_id " + std::to_string(next_) +
              " has not arrived, and this one comes after it");
}

void WorkQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait_for(lock, kLookInterval, [&] { return is_closed_ || !jobs_.empty(); });
    if (is_closed_) return;
    fail_after_gap();
    if (jobs_.empty()) continue;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job.run();
    lock.lock();
    bytes_ -= job.bytes;
  }
}

void WorkQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  for (const Job& job : jobs_) job.fail(kStopping);
  jobs_.clear();
  fail_held(kStopping);
}

}  // namespace tlt::tinker
