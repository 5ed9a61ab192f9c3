// RemoteTeacher: the logprobs of responses under a teacher that a server runs: vLLM, `tlt serve`, or
// another with OpenAI's API and prompt_logprobs. The tokens of one response are one request,
//   POST URL/completions {"model", "prompt": [ids], "max_tokens": 1, "prompt_logprobs": 0, …}
// and the answer has the logprob of each of them:
//   {"choices": [{"prompt_logprobs": [null, {"<id>": {"logprob": -0.5}}, …]}]}
// They are of temperature 1. Whether they are the same bits each time is up to the server.
//
// The workers share the responses. No answer, 408, 429 and 5xx are tried again until the deadline;
// anything else that is not an answer as above is a fault, the same on every worker.
//
// The key of the API is read from the environment variable TLT_TEACHER_API_KEY.
//
// Threading  engine thread only; up to kRequestsInFlight further threads, joined before score()
//            returns.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cluster/comm.h"
#include "reward/remote/http_client.h"
#include "tokenizer/tokenizer.h"
#include "train/sample.h"

namespace tlt::rl {

inline constexpr int64_t kRequestsInFlight = 8;  // of a worker
// Tokens, spread over the vocabulary, whose texts are compared at the start.
inline constexpr int64_t kProbeTokens = 256;

struct TeacherScores {
  std::vector<std::vector<float>> logprobs;  // of the response tokens, by sample
  std::string fault;                         // empty: all samples have theirs, unless stopped
};

class RemoteTeacher {
 public:
  // The URL of distillation.teacher. A response has `answer_seconds`, retries included.
  // InputError: it is no URL, or the key has a character that no key has.
  RemoteTeacher(const std::string& url, double answer_seconds);

  // Asks for the server's model, and for the logprobs of kProbeTokens tokens. InputError: the server
  // does not answer, refuses the key, has no prompt_logprobs, or a token has another text there than
  // in `tokenizer`: special tokens, spaces and bytes beyond ASCII are not compared, nor is anything
  // if the server gives no texts.
  void start(const tokenizer::Tokenizer& tokenizer);

  // All workers together. `should_stop`: true leaves out the rest; may be empty.
  // REQUIRES: start() was called.
  TeacherScores score(std::span<const train::TrainSample> samples, cluster::Comm& comm,
                      const std::function<bool()>& should_stop) const;

 private:
  class Batch;

  void check_tokens(const tokenizer::Tokenizer& tokenizer) const;
  // The answer's prompt_logprobs: an entry for each token.
  nlohmann::ordered_json ask(std::span<const int32_t> tokens,
                             reward::HttpClock::time_point deadline,
                             const std::function<bool()>& should_stop) const;

  const double answer_seconds_;
  const std::string key_;
  reward::HttpUrl base_, completions_;
  std::string model_;
};

}  // namespace tlt::rl
