// BackgroundWriter: one thread for slow writing (checkpoints, dumps) in the background.
//
// Owns       its thread and the queue of jobs, which run in the order of push().
// Threading  any thread may call; jobs run on the writer's thread.
// Invariant  after a job has thrown no later one runs: it may depend on the failed one, as `latest`
//            does on a checkpoint.
//
//   BackgroundWriter writer;
//   writer.push([state = std::move(state)] { write_file_atomic(path, state); });
//   writer.drain();                    // all done, or the first error is thrown here
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace tlt {

class BackgroundWriter {
 public:
  // At most `max_jobs` jobs wait; each holds the data it writes in memory.
  explicit BackgroundWriter(size_t max_jobs = 2);

  // Finishes all jobs. Logs an error that no caller has received.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Waits until the queue has a free slot, then queues the job. Throws the error of an earlier job,
  // as does every later call.
  void push(std::function<void()> job);

  // Waits until all jobs are done. Throws the error of a job.
  void drain();

  // Jobs that are not done yet.
  size_t jobs() const;

 private:
  void run();
  void rethrow();  // REQUIRES: mutex_ is held

  const size_t max_jobs_;

  mutable std::mutex mutex_;  // protects what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool is_running_job_ = false;
  bool is_ending_ = false;
  bool was_thrown_ = false;  // error_ has been thrown to a caller
  std::exception_ptr error_;

  std::thread thread_;
};

}  // namespace tlt
