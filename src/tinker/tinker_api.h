// TinkerApi: the addresses of the Tinker API (docs/tinker.md), so that its official client trains
// the server's model.
//
// A request that takes time is checked, put into the work queue, and answered with the id of a
// future, for which the client polls. Jobs of the training client run on the engine thread while
// the engine is idle; those of samplers are submitted to the engine, after the policy has their
// weights.
//
// Owns       its parts: sessions, the runner of jobs, the trained policy, the requests of the
//            training client and of samplers.
// Borrows    the engine loop, the policy.
// Not here   gradients and weights (trained_policy.h); HTTP (serve/http_server.h).
// Threading  any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "serve/engine_loop.h"
#include "serve/request_fields.h"
#include "serve/route.h"
#include "tinker/job_runner.h"
#include "tinker/sampling_api.h"
#include "tinker/sessions.h"
#include "tinker/tinker_options.h"
#include "tinker/trained_policy.h"
#include "tinker/training_api.h"

namespace tlt::tinker {

class TinkerApi final : public serve::Extension {
 public:
  TinkerApi(TinkerOptions options, model::PolicyModel& policy, serve::EngineLoop& loop);
  ~TinkerApi() override { close(); }

  std::vector<serve::Route> routes() override;
  void stop_waiting() override { runner_.stop_waiting(); }
  void close() override { runner_.close(); }

 private:
  using Fields = serve::RequestFields;

  void add_training_routes(std::vector<serve::Route>& routes);
  void add_other_routes(std::vector<serve::Route>& routes);
  TinkerParts parts();

  serve::Reply capabilities() const;
  serve::Reply client_config() const;
  serve::Reply create_session(Fields fields);
  serve::Reply heartbeat(Fields fields);
  serve::Reply finish_session(const std::string& path);
  void drop(const std::string& session);

  const TinkerOptions options_;
  const TokenLimits limits_;
  TrainedPolicy policy_;
  Sessions sessions_;
  JobRunner runner_;
  SamplingApi sampling_;
  TrainingApi training_;
};

}  // namespace tlt::tinker
