// SPDX-License-Identifier: Apache-2.0
#include "tinker/job_runner.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <utility>

#include "serve/api_error.h"
#include "tinker/replies.h"

namespace tlt::tinker {
namespace {

using serve::Reply;

// How long a poll waits: the client's timeout is 45 s.
constexpr double kPollSeconds = 20, kBusyPollSeconds = 1;

// Counts this poll while it waits.
class Waiting {
 public:
  explicit Waiting(std::atomic<int64_t>& count) : count_(count), number_(++count) {}
  ~Waiting() { --count_; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  int64_t number() const { return number_; }

 private:
  std::atomic<int64_t>& count_;
  const int64_t number_;
};

}  // namespace

JobRunner::JobRunner(serve::EngineLoop& loop, const TrainedPolicy& policy, int64_t max_waiting)
    : loop_(loop), policy_(policy), max_waiting_(max_waiting) {}

void JobRunner::close() {
  stops_ = true;
  queue_.close();
}

// The version of the weights counts what has changed, even if the work ends with an error.
void JobRunner::run_while_idle(const std::function<void()>& work) {
  std::exception_ptr error;
  loop_.run_while_idle([&] {
    const int64_t changes = policy_.changes();
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    return policy_.changes() != changes;
  });
  if (error) std::rethrow_exception(error);
}

Job JobRunner::job_of(const std::shared_ptr<Future>& future, Work work, size_t bytes) {
  const auto run = [this, future, work = std::move(work)] {
    future->set(*reply_or_failure([&] {
      Reply reply;
      run_while_idle([&] { reply = work(); });
      return reply;
    }));
  };
  const auto fail = [future](const std::string& why) {
    future->set(failed_reply(why, Blame::kUser));
  };
  return {.run = run, .fail = fail, .bytes = bytes};
}

// Opens the future, and calls `push` if it is new.
void JobRunner::open(const Request& request,
                     const std::function<void(const std::shared_ptr<Future>&)>& push) {
  const auto [future, is_new] = futures_.open(request.id, request.session);
  if (!is_new) return;
  try {
    push(future);
  } catch (...) {
    futures_.forget(request.id);
    throw;
  }
}

void JobRunner::push(const Request& request, Work work) {
  open(request,
       [&](const auto& future) { queue_.push(job_of(future, std::move(work), request.bytes)); });
}

void JobRunner::push(const Request& request, std::function<void(Future&)> run) {
  open(request, [&](const std::shared_ptr<Future>& future) {
    Job job = job_of(future, {}, request.bytes);
    job.run = [future, run = std::move(run)] { run(*future); };
    queue_.push(std::move(job));
  });
}

void JobRunner::push_unanswered(Work work) {
  queue_.push(job_of(std::make_shared<Future>(""), std::move(work), /*bytes=*/0));
}

void JobRunner::add(const Request& request, Reply result) {
  futures_.open(request.id, request.session).first->set(std::move(result));
}

Reply JobRunner::push_in_order(const ModelRequest& request, Work work) {
  const std::lock_guard lock(arrival_);
  const int64_t sequence_id =
      request.sequence_id == 0 ? queue_.next_id(request.model) : request.sequence_id;
  const std::string id = fmt::format("{}:{}", request.model, sequence_id);
  open({.id = id, .session = request.session}, [&](const auto& future) {
    queue_.push_in_order(request.model, sequence_id,
                         job_of(future, std::move(work), request.bytes));
  });
  return json_reply({{"request_id", id}, {"model_id", request.model}});
}

Reply JobRunner::retrieve(serve::RequestFields fields) {
  const std::string id = fields.text("request_id");
  fields.ignore({"allow_metadata_only"});
  fields.refuse_others();
  const std::shared_ptr<Future> future = futures_.find(id);
  if (!future)
    throw serve::not_found("there is no request " + id.substr(0, kMaxNameBytes) +
                               "; its session has ended, or its result was retrieved long ago",
                           "not_found");
  const Waiting waiting(waiting_);
  const std::optional<Reply> reply =
      future->wait(waiting.number() > max_waiting_ ? kBusyPollSeconds : kPollSeconds,
                   [this] { return stops_.load(); });
  if (!reply)
    return json_reply({{"type", "try_again"}, {"request_id", id}, {"queue_state", "active"}});
  futures_.mark_retrieved(id);
  return *reply;
}

}  // namespace tlt::tinker
