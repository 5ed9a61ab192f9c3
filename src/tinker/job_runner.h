// JobRunner: executes requests that take time, one after the other, and keeps their results until
// the client has polled for them.
//
// A request is answered at once with the id of a future; its work runs on the engine thread while
// the engine is idle, and what it returns or throws becomes the result.
//
// Owns       the futures, the work queue.
// Borrows    the engine loop, the policy.
// Not here   which requests there are (training_api.h, sampling_api.h).
// Threading  any thread; run_while_idle(): the queue's thread.
//
//   runner.push({.id = "session:0:7", .session = "session"}, [&]() -> serve::Reply { … });
//   reply = runner.retrieve(serve::RequestFields(body));  // of a poll
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "serve/engine_loop.h"
#include "serve/request_fields.h"
#include "serve/route.h"
#include "tinker/future.h"
#include "tinker/trained_policy.h"
#include "tinker/work_queue.h"

namespace tlt::tinker {

class JobRunner {
 public:
  // max_waiting: polls that may wait long at the same time; further ones wait shortly.
  JobRunner(serve::EngineLoop& loop, const TrainedPolicy& policy, int64_t max_waiting);

  using Work = std::function<serve::Reply()>;  // engine thread; InputError blames the user
  struct Request {
    std::string id;  // of its future
    std::string session;
    size_t bytes = 0;  // that the work keeps
  };

  // Executes the work after the jobs before it; not again if there is such an id: the client has
  // sent the request again. ApiError (429): too much waits.
  void push(const Request& request, Work work);
  // `run` is called on the queue's thread and sets the future itself.
  void push(const Request& request, std::function<void(Future&)> run);
  // Without a future.
  void push_unanswered(Work work);
  // A result that is there at once.
  void add(const Request& request, serve::Reply result);

  // The model whose requests have sequence ids from 1 on; those of the one before fail.
  void begin_model(const std::string& model) { queue_.begin_model(model); }
  void end_model() { queue_.end_model(); }
  struct ModelRequest {
    std::string model, session;
    int64_t sequence_id = 0;  // 0: that after all that have arrived, in the order of arrival
    size_t bytes = 0;
  };
  // Executes the work after the model's requests with smaller sequence ids, and once. Answers with
  // its future.
  serve::Reply push_in_order(const ModelRequest& request, Work work);

  // Runs `work` on the engine thread while the engine is idle; throws what it throws.
  void run_while_idle(const std::function<void()>& work);
  serve::EngineLoop& loop() { return loop_; }

  // The answer to a poll.
  serve::Reply retrieve(serve::RequestFields fields);
  void forget_session(const std::string& session) { futures_.forget_session(session); }

  bool is_stopping() const { return stops_; }
  void stop_waiting() { stops_ = true; }
  // Returns when no job runs; those that wait fail.
  void close();

 private:
  Job job_of(const std::shared_ptr<Future>& future, Work work, size_t bytes);
  void open(const Request& request,
            const std::function<void(const std::shared_ptr<Future>&)>& push);

  serve::EngineLoop& loop_;
  const TrainedPolicy& policy_;
  const int64_t max_waiting_;
  FutureStore futures_;
  std::atomic<bool> stops_ = false;
  std::atomic<int64_t> waiting_ = 0;  // polls that wait
  std::mutex arrival_;                // one request takes its sequence id and its place at a time
  WorkQueue queue_;                   // last: its jobs use the rest
};

}  // namespace tlt::tinker
