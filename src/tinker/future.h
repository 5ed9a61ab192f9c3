// Future: the answer to a request that is computed later, which the client polls for. FutureStore:
// those of a server, by the id of the request.
//
// A future is set once, by whoever computes it. One of a sampling has the channel of its responses
// instead, and whoever waits for it collects them.
//
// Owns       the answers until they have been retrieved, and some of those after it, so that a
//            client whose connection broke can ask again.
// Threading  any thread.
//
//   const auto future = store.open("session:train:0:3").first;
//   future->set({.body = R"({"path": …})"});           // the thread that computes it
//   if (auto reply = future->wait(20)) …               // a thread that answers the client
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/response_channel.h"
#include "serve/route.h"

namespace tlt::tinker {

// Collects the responses of a sampling.
class SampleCollector {
 public:
  SampleCollector(std::shared_ptr<serve::ResponseChannel> channel, int64_t samples,
                  std::vector<float> prompt_logprobs, int64_t top_k);
  // Waits for further tokens; the whole answer (tinker_public.SampleResponse) after the last one.
  std::optional<serve::Reply> wait(double seconds);

 private:
  struct Sample {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    std::vector<std::vector<ops::Sampled>> top;
    std::optional<rollout::FinishReason> finish;
  };
  serve::Reply reply() const;

  const std::shared_ptr<serve::ResponseChannel> channel_;
  const std::vector<float> prompt_logprobs_;  // NaN: none at this position; empty: not requested
  const int64_t top_k_;
  std::vector<Sample> samples_;
  int64_t unfinished_;
  bool is_open_ = false;
};

class Future {
 public:
  explicit Future(std::string session) : session(std::move(session)) {}

  void set(serve::Reply reply);
  void set(std::unique_ptr<SampleCollector> collector);
  // The answer, or nullopt after this time, or once stop() says so.
  std::optional<serve::Reply> wait(double seconds, const std::function<bool()>& stop = {});
  const std::string session;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<serve::Reply> reply_;
  std::unique_ptr<SampleCollector> collector_;
};

class FutureStore {
 public:
  // The future of this id, and whether it is new. ApiError (429): too many are not retrieved yet.
  std::pair<std::shared_ptr<Future>, bool> open(const std::string& id, const std::string& session);
  std::shared_ptr<Future> find(const std::string& id) const;  // null: there is none
  // The client has the answer; it may be forgotten soon.
  void mark_retrieved(const std::string& id);
  void forget(const std::string& id);
  // Those of a session that has ended.
  void forget_session(const std::string& session);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Future>> futures_;
  std::list<std::string> retrieved_;  // oldest first
};

}  // namespace tlt::tinker
