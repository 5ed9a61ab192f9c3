// ResponseChannel: the tokens of one request's responses, from the engine thread to the HTTP thread
// that answers the request.
//
// Threading  the first group of functions: engine thread; the second: the HTTP thread.
//
//   channel->push({.choice = 0, .tokens = {5}, .logprobs = {-0.1f}});        // engine thread
//   for (const TokenDelta& delta : channel->wait(0.1)) …                     // HTTP thread
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "rollout/request.h"

namespace tlt::serve {

// Further tokens of a response.
struct TokenDelta {
  int64_t choice = 0;  // index of the response within the request
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<ops::Sampled>> top_logprobs;  // as in rollout::Response
  std::optional<rollout::FinishReason> finish;          // set: these were the last ones
  int64_t cached_tokens = 0;                            // with finish: as in rollout::Response
};

class ResponseChannel {
 public:
  // The engine has accepted the request, whose responses are of these weights.
  void open(int64_t weight_version);
  void push(TokenDelta delta);
  // wait() and wait_open() throw this from now on.
  void fail(std::exception_ptr error);

  // The weight version once open() was called; nullopt after this time without it.
  std::optional<int64_t> wait_open(double seconds);
  // What was pushed since the last call, at least one of it unless this time has passed.
  std::vector<TokenDelta> wait(double seconds);

 private:
  template <class Ready>
  std::unique_lock<std::mutex> wait_until(double seconds, Ready ready);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<int64_t> weight_version_;
  std::vector<TokenDelta> deltas_;
  std::exception_ptr error_;
};

}  // namespace tlt::serve
