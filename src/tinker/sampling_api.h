// SamplingApi: the requests of the Tinker API's sampling clients.
//
// Sampling waits in the queue, then is submitted to the engine, after the policy has the sampler's
// weights.
//
// Owns       the samplers, and the snapshots of weights that they keep.
// Borrows    sessions, policy and runner.
// Threading  any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serve/request_fields.h"
#include "serve/route.h"
#include "tinker/job_runner.h"
#include "tinker/sample_request.h"
#include "tinker/tinker_options.h"
#include "tinker/trained_policy.h"

namespace tlt::tinker {

class SamplingApi {
 public:
  explicit SamplingApi(const TinkerParts& parts) : parts_(parts) {}

  serve::Reply create_session(serve::RequestFields fields);
  serve::Reply describe(const std::string& path);  // …/samplers/ID
  serve::Reply sample(const std::string& body);

  // A sampler of these weights; returns its id. `number` is its sampling_session_seq_id. ApiError
  // (410): the session has ended.
  std::string add(const std::string& session, uint64_t number, Weights weights);
  // Drops those of a session that has ended.
  void forget_session(const std::string& session);

 private:
  struct Sampler {
    std::string session = {}, path = {};  // path: tinker://…, empty: none
    std::string folder = {};              // of saved weights that are not loaded yet; empty: none
    Weights weights = nullptr;            // null: the base
    uint64_t number = 0;                  // sampling_session_seq_id
    bool is_dropped = false;              // its weights are not kept any longer
  };

  std::string add(Sampler sampler);
  Sampler find(const std::string& id) const;
  void drop_old_weights();
  void run(Future& future, const SampleRequest& request);
  void wait_for_room(const std::function<void()>& call) const;
  void show(const std::string& id);
  std::vector<float> score_prompt(const SampleRequest& request) const;

  const TinkerParts parts_;

  mutable std::mutex mutex_;  // guards all below
  std::map<std::string, Sampler> samplers_;
  std::vector<std::string> order_;  // oldest first
};

}  // namespace tlt::tinker
