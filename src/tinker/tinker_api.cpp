// SPDX-License-Identifier: Apache-2.0
#include "tinker/tinker_api.h"

#include <algorithm>
#include <string>
#include <utility>

#include "serve/api_error.h"
#include "tinker/replies.h"
#include "tinker/saved_path.h"

namespace tlt::tinker {
namespace {

using Json = nlohmann::ordered_json;
using serve::bad_request;
using serve::HttpRequest;
using serve::Reply;

// The rest of the Tinker API, and what a server with a training client refuses.
std::vector<serve::Route> refusals() {
  const auto refuse = [](const serve::HttpRequest& request, const serve::Client&) -> Reply {
    throw serve::not_found("this server does not have " + request.path.substr(0, kMaxNameBytes) +
                               " of the Tinker API; docs/tinker.md says what it has",
                           "not_found");
  };
  const auto refuse_update = [](const serve::HttpRequest&, const serve::Client&) -> Reply {
    throw bad_request("the weights of a server with --train are those of its training client");
  };
  return {{"POST", "/api/v1/*", refuse},
          {"GET", "/api/v1/*", refuse},
          {"POST", "/update_weights", refuse_update}};
}

}  // namespace

TinkerApi::TinkerApi(TinkerOptions options, model::PolicyModel& policy, serve::EngineLoop& loop)
    : options_(std::move(options)),
      limits_{.vocabulary = policy.tokens(), .max_positions = policy.config().max_positions},
      policy_(policy, {.model_folder = options_.model_folder, .trainer = options_.trainer}),
      sessions_(options_.sessions, [this](const std::string& id) { drop(id); }),
      runner_(loop, policy_, options_.max_connections / 2),
      sampling_(parts()),
      training_(parts(), sampling_) {}

TinkerParts TinkerApi::parts() {
  return {.options = options_,
          .limits = limits_,
          .sessions = sessions_,
          .policy = policy_,
          .runner = runner_};
}

std::vector<serve::Route> TinkerApi::routes() {
  std::vector<serve::Route> routes;
  add_training_routes(routes);
  add_other_routes(routes);
  for (serve::Route& route : refusals()) routes.push_back(std::move(route));
  return routes;
}

void TinkerApi::add_training_routes(std::vector<serve::Route>& routes) {
  const auto post = [&](const char* path, Reply (TrainingApi::*answer)(Fields)) {
    routes.push_back(
        {"POST", path, [this, answer](const HttpRequest& request, const serve::Client&) {
           return (training_.*answer)(Fields(request.body));
         }});
  };
  post("/api/v1/create_model", &TrainingApi::create_model);
  post("/api/v1/unload_model", &TrainingApi::unload_model);
  post("/api/v1/get_info", &TrainingApi::get_info);
  post("/api/v1/weights_info", &TrainingApi::weights_info);
  post("/api/v1/optim_step", &TrainingApi::optim_step);
  post("/api/v1/save_weights", &TrainingApi::save_weights);
  post("/api/v1/save_weights_for_sampler", &TrainingApi::save_for_sampler);
  post("/api/v1/load_weights", &TrainingApi::load_weights);
  routes.push_back({"POST", "/api/v1/forward_backward",
                    [this](const HttpRequest& request, const serve::Client&) {
                      return training_.forward_backward(request.body);
                    },
                    "application/x-protobuf"});
}

void TinkerApi::add_other_routes(std::vector<serve::Route>& routes) {
  const auto at = [&](const char* method, const char* path, auto answer) {
    routes.push_back(
        {method, path, [answer](const HttpRequest& request, const serve::Client&) -> Reply {
           return answer(request);
         }});
  };
  using R = HttpRequest;
  at("POST", "/api/v1/create_session",
     [this](const R& r) { return create_session(Fields(r.body)); });
  at("POST", "/api/v1/session_heartbeat", [this](const R& r) { return heartbeat(Fields(r.body)); });
  at("POST", "/api/v1/sessions/*", [this](const R& r) { return finish_session(r.path); });
  at("POST", "/api/v1/create_sampling_session",
     [this](const R& r) { return sampling_.create_session(Fields(r.body)); });
  at("POST", "/api/v1/asample", [this](const R& r) { return sampling_.sample(r.body); });
  at("GET", "/api/v1/samplers/*", [this](const R& r) { return sampling_.describe(r.path); });
  at("POST", "/api/v1/retrieve_future",
     [this](const R& r) { return runner_.retrieve(Fields(r.body)); });
  at("GET", "/api/v1/get_server_capabilities", [this](const R&) { return capabilities(); });
  at("GET", "/api/v1/healthz", [](const R&) { return json_reply({{"status", "ok"}}); });
  at("POST", "/api/v1/client/config", [this](const R&) { return client_config(); });
  at("POST", "/api/v1/client/dynamic_config", [](const R&) {
    return json_reply({{"sample_cancel_enabled", false}});
  });
  at("POST", "/api/v1/telemetry", [](const R&) { return json_reply({{"status", "accepted"}}); });
}

Reply TinkerApi::capabilities() const {
  const Json model = {{"model_name", options_.model_name},
                      {"max_context_length", limits_.max_positions},
                      {"trainable", true},
                      {"sampleable", true}};
  return json_reply({{"supported_models", Json::array({model})}});
}

Reply TinkerApi::client_config() const {
  return json_reply(
      {{"pjwt_auth_enabled", false},
       {"proto_compress_fwdbwd", false},
       {"parallel_fwdbwd_chunks", true},
       {"fwdbwd_max_chunk_bytes_count", options_.max_body_bytes / 2},
       {"sample_use_retrieve_futures", false},
       {"custom_loss_server_side", false},
       {"sample_join_sampling_session", false},
       {"sample_max_concurrent_requests", std::max<int64_t>(1, options_.max_connections / 4)}});
}

Reply TinkerApi::create_session(Fields fields) {
  fields.ignore({"tags", "user_metadata", "sdk_version", "project_id", "display_name", "type"});
  fields.refuse_others();
  return json_reply({{"type", "create_session"}, {"session_id", sessions_.create()}});
}

Reply TinkerApi::heartbeat(Fields fields) {
  sessions_.touch(fields.text("session_id"));
  return json_reply({{"type", "session_heartbeat"}});
}

// …/sessions/ID/finish
Reply TinkerApi::finish_session(const std::string& path) {
  const std::vector<std::string> parts = parts_of(path);
  if (parts.size() != 6 || parts[5] != "finish")
    throw serve::not_found("this server does not have this part of the Tinker API", "not_found");
  sessions_.end(parts[4]);
  return {.body = "{}"};
}

// What belongs to a session that has ended.
void TinkerApi::drop(const std::string& session) {
  sampling_.forget_session(session);
  runner_.forget_session(session);
  training_.end_session(session);
}

}  // namespace tlt::tinker
