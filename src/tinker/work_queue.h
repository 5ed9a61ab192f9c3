// WorkQueue: the jobs of the training client and of its samplers, executed one at a time by a
// thread of its own, in the order in which they arrived; those of the model in the order of their
// sequence ids, whatever order they arrive in.
//
// Owns       the thread, the jobs.
// Threading  any thread; jobs run on the queue's thread.
// Bound      bytes of the jobs that wait, apart from one that all others wait for; a job whose
//            predecessors do not arrive fails after kGapSeconds.
//
//   WorkQueue queue;
//   queue.begin_model("session:train:0");
//   queue.push_in_order("session:train:0", 2, job);    // waits for 1
//   queue.push(sampling);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"

namespace tlt::tinker {

struct Job {
  std::function<void()> run;                         // must not throw
  std::function<void(const std::string& why)> fail;  // instead of run(), if it will not run
  size_t bytes = 0;
};

class WorkQueue {
 public:
  WorkQueue();
  ~WorkQueue() { close(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // ApiError (429): too many bytes wait; (503): closed.
  void push(Job job);

  // A model whose first sequence id is 1; that of before is forgotten, and its jobs that wait for
  // others fail.
  void begin_model(const std::string& id);
  void end_model() { begin_model(""); }
  // The sequence id that a request without one has. REQUIRES: this is the model.
  int64_t next_id(const std::string& model) const;
  // As push(); ApiError (400): the sequence id is not of the future, or the model is another one.
  void push_in_order(const std::string& model, int64_t sequence_id, Job job);

  // Jobs that have not begun fail; returns when the one that runs has ended.
  void close();

 private:
  struct Held {
    Job job;
    Stopwatch since = Stopwatch();
  };

  void run();
  void check_room(const Job& job, bool is_next) const;
  void fail_held(const std::string& why);
  void fail_after_gap();

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  size_t bytes_ = 0;
  std::string model_;  // empty: none
  int64_t next_ = 1;
  std::map<int64_t, Held> held_;  // by sequence id, all above next_
  bool is_closed_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace tlt::tinker
