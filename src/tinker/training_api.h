// TrainingApi: the requests of the Tinker API's training client, of which there is one at a time.
//
// They run in the order of their sequence ids. Those without one (0) run in the order in which they
// arrive, after all requests that have arrived before them.
//
// Owns       the training client.
// Borrows    sessions, policy and runner; the samplers of the weights that it saves.
// Not here   gradients and weights (trained_policy.h).
// Threading  any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "serve/request_fields.h"
#include "serve/route.h"
#include "tinker/job_runner.h"
#include "tinker/sampling_api.h"
#include "tinker/tinker_options.h"

namespace tlt::tinker {

class TrainingApi {
 public:
  TrainingApi(const TinkerParts& parts, SamplingApi& samplers)
      : parts_(parts), samplers_(samplers) {}

  // Answer at once.
  serve::Reply get_info(serve::RequestFields fields);
  serve::Reply weights_info(serve::RequestFields fields);

  // Answer with a future.
  serve::Reply create_model(serve::RequestFields fields);
  serve::Reply unload_model(serve::RequestFields fields);
  serve::Reply forward_backward(const std::string& body);
  serve::Reply optim_step(serve::RequestFields fields);
  serve::Reply save_weights(serve::RequestFields fields);
  serve::Reply save_for_sampler(serve::RequestFields fields);
  serve::Reply load_weights(serve::RequestFields fields);

  // Ends the training of a session that has ended.
  void end_session(const std::string& session);

 private:
  using Fields = serve::RequestFields;
  using Work = JobRunner::Work;
  using Adapter = std::optional<train::LoraConfig>;  // nullopt: all weights
  struct Training {
    std::string id, session;
    Adapter adapter;
  };
  // What in_order() needs of a request.
  struct Place {
    std::string model;
    int64_t sequence_id = 0;
    size_t bytes = 0;
  };

  Training training(const std::string& id);
  std::string begin(const std::string& session, int64_t number, const Adapter& adapter);
  bool forget(const std::string& id);
  void end(const std::string& id);
  serve::Reply start(const std::string& session, const std::string& model, Work work);
  serve::Reply load_new_model(Fields fields);
  train::LoraConfig adapter_of(Fields fields) const;
  std::string folder_of(const std::string& path) const;
  static Place place_of(Fields& fields);
  // `fault`: what is wrong with the request; empty: nothing. A request that is refused takes its
  // turn too, or those after it would wait for it.
  serve::Reply in_order(const Place& place, const std::string& fault, Work work);

  const TinkerParts parts_;
  SamplingApi& samplers_;

  std::mutex mutex_;  // guards all below
  std::optional<Training> training_;
};

}  // namespace tlt::tinker
