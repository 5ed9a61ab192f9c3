// SPDX-License-Identifier: Apache-2.0
#include "base/background_writer.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tlt {

BackgroundWriter::BackgroundWriter(size_t max_jobs) : max_jobs_(max_jobs) {
  TLT_CHECK(max_jobs > 0);
  thread_ = std::thread([this] { run(); });
}

BackgroundWriter::~BackgroundWriter() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (!error_ || was_thrown_) return;
  try {
    std::rethrow_exception(error_);
  } catch (const std::exception& error) {
    log_error("writing in the background failed: {}", error.what());
  } catch (...) {
    log_error("writing in the background failed");
  }
}

void BackgroundWriter::push(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return error_ || jobs_.size() < max_jobs_; });
  rethrow();
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void BackgroundWriter::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !is_running_job_; });
  rethrow();
}

size_t BackgroundWriter::jobs() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size() + is_running_job_;
}

void BackgroundWriter::rethrow() {
  if (!error_) return;
  was_thrown_ = true;
  std::rethrow_exception(error_);
}

void BackgroundWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    is_running_job_ = true;
    changed_.notify_all();
    lock.unlock();
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    job = nullptr;  // frees what it holds before drain() returns, and without the lock
    lock.lock();
    is_running_job_ = false;
    if (error) {
      error_ = error;
      jobs_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace tlt
