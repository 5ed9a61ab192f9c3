// BackgroundWriter: one thread that does slow writing (checkpoints, dumps) beside the work.
//
// Owns       its thread and the queue of jobs, done in the order given.
// Threading  any thread may call; jobs run on the writer's thread.
// Invariant  after a job has thrown no later one runs: what follows may depend on it, as `latest`
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
  // At most `max_jobs` wait; they hold the memory of what they write.
  explicit BackgroundWriter(size_t max_jobs = 2);

  // Does all jobs first. An error that nobody was told is logged.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Waits for room, then queues the job. Throws what an earlier job threw; so does every later
  // call.
  void push(std::function<void()> job);

  // Waits until all jobs are done. Throws what a job threw.
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
  bool was_told_ = false;  // error_ has been thrown to a caller
  std::exception_ptr error_;

  std::thread thread_;
};

}  // namespace tlt
