// SPDX-License-Identifier: Apache-2.0
#include "tinker/tinker_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "serve/api_error.h"

namespace tlt::tinker {
namespace {

namespace fs = std::filesystem;
using serve::bad_request;
using serve::Reply;

constexpr size_t kMaxSessions = 1024, kMaxSamplers = 8192;
// Snapshots that samplers without a name keep in memory: the newest ones.
constexpr size_t kKeptWeights = 16;
// The client sends a heartbeat every 10 s. One that has not for this long is gone.
constexpr double kSilentSeconds = 60;
// After this long its results are forgotten, even if there is room for them.
constexpr double kForgottenSeconds = 3600;
// How long a request for a future waits: the client's timeout is 45 s.
constexpr double kPollSeconds = 20, kBusyPollSeconds = 1;
constexpr size_t kMaxNameBytes = 128;
constexpr auto kFullInterval = std::chrono::milliseconds(5);

constexpr const char* kScheme = "tinker://";

Reply reply_of(const nlohmann::ordered_json& json) {
  return {.body = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)};
}

std::string random_prefix() {
  std::random_device device;
  return fmt::format("{:08x}", device());
}

bool is_name(const std::string& text, const char* punctuation) {
  return !text.empty() && text.size() <= kMaxNameBytes && text.front() != '.' &&
         std::ranges::all_of(text, [&](unsigned char c) {
           return std::isalnum(c) || std::string_view(punctuation).find(static_cast<char>(c)) !=
                                         std::string_view::npos;
         });
}

// "a/b/c" is {a, b, c}.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == '/')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// The object in a field, "{}" when it is absent.
serve::RequestFields object_in(serve::RequestFields& fields, const char* name) {
  const auto* object = fields.find(name);
  return serve::RequestFields(
      object == nullptr
          ? "{}"
          : object->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

train::OptimOptions optim_of(serve::RequestFields& fields) {
  serve::RequestFields adam = object_in(fields, "adam_params");
  fields.accept_only("optimizer_params", nullptr);
  train::OptimOptions optim;
  optim.lr = adam.number("learning_rate", 1e-4);
  optim.betas = {adam.number("beta1", 0.9), adam.number("beta2", 0.95)};
  optim.eps = adam.number("eps", 1e-12);
  optim.weight_decay = adam.number("weight_decay", 0);
  optim.clip_grad = adam.number("grad_clip_norm", 0);
  adam.refuse_others();
  TLT_CHECK_INPUT(optim.eps >= 0 && optim.eps <= 1, "eps is ", optim.eps,
                  "; give a number from 0 to 1");
  optim.check();
  return optim;
}

// Tells a sampling without a seed from the others of its session: uniforms belong to this key.
uint64_t key_of(uint64_t sampler, int64_t request) {
  return sampler << 40 ^ static_cast<uint64_t>(request);
}

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
      loop_(loop),
      limits_{.vocabulary = policy.tokens(), .max_positions = policy.config().max_positions},
      prefix_(random_prefix()),
      policy_(policy, {.model_folder = options_.model_folder, .trainer = options_.trainer}) {}

void TinkerApi::close() {
  stops_ = true;
  queue_.close();
}

std::vector<serve::Route> TinkerApi::routes() {
  using serve::Client;
  using serve::HttpRequest;
  std::vector<serve::Route> routes;
  const auto post = [&](const char* path, Reply (TinkerApi::*answer)(Fields)) {
    routes.push_back({"POST", path, [this, answer](const HttpRequest& request, const Client&) {
                        return (this->*answer)(Fields(request.body));
                      }});
  };
  const auto at = [&](const char* method, const char* path, auto answer) {
    routes.push_back({method, path, [answer](const HttpRequest& request, const Client&) -> Reply {
                        return answer(request);
                      }});
  };
  post("/api/v1/create_session", &TinkerApi::create_session);
  post("/api/v1/session_heartbeat", &TinkerApi::heartbeat);
  post("/api/v1/create_model", &TinkerApi::create_model);
  post("/api/v1/unload_model", &TinkerApi::unload_model);
  post("/api/v1/get_info", &TinkerApi::get_info);
  post("/api/v1/weights_info", &TinkerApi::weights_info);
  post("/api/v1/optim_step", &TinkerApi::optim_step);
  post("/api/v1/save_weights", &TinkerApi::save_weights);
  post("/api/v1/save_weights_for_sampler", &TinkerApi::save_for_sampler);
  post("/api/v1/load_weights", &TinkerApi::load_weights);
  post("/api/v1/create_sampling_session", &TinkerApi::create_sampling_session);
  post("/api/v1/retrieve_future", &TinkerApi::retrieve_future);
  at("POST", "/api/v1/asample", [this](const HttpRequest& r) { return sample(r.body); });
  at("POST", "/api/v1/forward_backward",
     [this](const HttpRequest& r) { return forward_backward(r.body); });
  routes.back().content_type = "application/x-protobuf";
  at("GET", "/api/v1/get_server_capabilities",
     [this](const HttpRequest&) { return capabilities(); });
  at("GET", "/api/v1/healthz", [](const HttpRequest&) { return reply_of({{"status", "ok"}}); });
  at("GET", "/api/v1/samplers/*",
     [this](const HttpRequest& r) { return describe_sampler(r.path); });
  at("POST", "/api/v1/client/config", [this](const HttpRequest&) { return client_config(); });
  at("POST", "/api/v1/client/dynamic_config", [](const HttpRequest&) {
    return reply_of({{"sample_cancel_enabled", false}});
  });
  at("POST", "/api/v1/telemetry", [](const HttpRequest&) {
    return reply_of({{"status", "accepted"}});
  });
  at("POST", "/api/v1/sessions/*", [this](const HttpRequest& r) { return finish_session(r.path); });
  for (serve::Route& route : refusals()) routes.push_back(std::move(route));
  return routes;
}

// ---- Answers at once.

Reply TinkerApi::capabilities() const {
  const Json model = {{"model_name", options_.model_name},
                      {"max_context_length", limits_.max_positions},
                      {"trainable", true},
                      {"sampleable", true}};
  return reply_of({{"supported_models", Json::array({model})}});
}

Reply TinkerApi::client_config() const {
  return reply_of(
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
  const std::lock_guard lock(mutex_);
  forget_silent_sessions(sessions_.size() >= kMaxSessions ? kSilentSeconds : kForgottenSeconds);
  if (sessions_.size() >= kMaxSessions) throw serve::too_many_requests("too many sessions");
  const std::string id = fmt::format("{}-{}", prefix_, ++created_sessions_);
  sessions_.try_emplace(id);
  return reply_of({{"type", "create_session"}, {"session_id", id}});
}

// REQUIRES: the lock. Not the session of the training, which another training ends.
void TinkerApi::forget_silent_sessions(double seconds) {
  std::erase_if(sessions_, [&](const auto& entry) {
    const bool is_gone = entry.second.unseen.seconds() > seconds &&
                         (!training_ || training_->session != entry.first);
    if (is_gone) futures_.forget_session(entry.first);
    return is_gone;
  });
}

// Throws ApiError 410, which ends the client's heartbeats, if there is no such session.
void TinkerApi::touch(const std::string& session) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end())
    throw serve::ApiError(410, "invalid_request_error",
                          "session " + session.substr(0, kMaxNameBytes) +
                              " has ended, or is of another start of the server");
  found->second.unseen = Stopwatch();
}

Reply TinkerApi::heartbeat(Fields fields) {
  touch(fields.text("session_id"));
  return reply_of({{"type", "session_heartbeat"}});
}

// …/sessions/ID/finish
Reply TinkerApi::finish_session(const std::string& path) {
  const std::vector<std::string> parts = parts_of(path);
  if (parts.size() != 6 || parts[5] != "finish")
    throw serve::not_found("this server does not have this part of the Tinker API", "not_found");
  const std::string& id = parts[4];
  touch(id);
  std::string model;
  {
    const std::lock_guard lock(mutex_);
    sessions_.erase(id);
    if (training_ && training_->session == id) model = training_->id;
    std::erase_if(samplers_, [&](const auto& entry) { return entry.second.session == id; });
    std::erase_if(sampler_order_,
                  [&](const std::string& name) { return !samplers_.contains(name); });
  }
  futures_.forget_session(id);
  if (!model.empty()) end_training(model);
  return {.body = "{}"};
}

TinkerApi::Training TinkerApi::training(const std::string& id) {
  Training found;
  {
    const std::lock_guard lock(mutex_);
    if (!training_ || training_->id != id)
      throw serve::not_found("there is no model " + id.substr(0, kMaxNameBytes) +
                                 "; its session has ended, or it is of another start of the server",
                             "model_not_found");
    found = *training_;
  }
  touch(found.session);
  return found;
}

Reply TinkerApi::get_info(Fields fields) {
  const Training model = training(fields.text("model_id"));
  return reply_of(
      {{"type", "get_info"},
       {"model_data",
        {{"model_name", options_.model_name},
         {"tokenizer_id", fs::absolute(options_.model_folder).lexically_normal().string()}}},
       {"model_id", model.id},
       {"model_name", options_.model_name},
       {"optimizer_config", {{"type", "adamw"}}},
       {"is_lora", model.adapter.has_value()},
       {"lora_rank", model.adapter ? Json(model.adapter->rank) : Json()}});
}

Reply TinkerApi::weights_info(Fields fields) {
  const auto adapter = TrainedPolicy::read_kind(folder_of(fields.text("tinker_path")));
  return reply_of({{"base_model", options_.model_name},
                   {"is_lora", adapter.has_value()},
                   {"lora_rank", adapter ? Json(adapter->rank) : Json()}});
}

// tinker://MODEL/weights/NAME or tinker://MODEL/sampler_weights/NAME
std::string TinkerApi::folder_of(const std::string& path) const {
  const std::vector<std::string> parts =
      parts_of(path.starts_with(kScheme) ? path.substr(std::string_view(kScheme).size()) : "");
  TLT_CHECK_INPUT(parts.size() == 3 && is_name(parts[0], "-:") &&
                      (parts[1] == "weights" || parts[1] == "sampler_weights") &&
                      is_name(parts[2], "-_.") && !parts[2].ends_with(".writing"),
                  "'", path.substr(0, 4 * kMaxNameBytes),
                  "' is not a path of saved weights; save_state() and save_weights_for_sampler() "
                  "return them, as tinker://MODEL/weights/NAME, where a name has letters, digits, "
                  "'-', '_' and '.'");
  std::string model = parts[0];
  std::ranges::replace(model, ':', '-');
  return options_.save_folder + "/" + model + "/" + parts[1] + "/" + parts[2];
}

std::string TinkerApi::add_sampler(const std::string& session, uint64_t number, Sampler sampler) {
  const std::string id = fmt::format("{}:sample:{}", session, number);
  sampler.session = session;
  sampler.number = number;
  const std::lock_guard lock(mutex_);
  if (samplers_.contains(id)) return id;  // the client has asked again
  if (samplers_.size() >= kMaxSamplers) {
    samplers_.erase(sampler_order_.front());
    sampler_order_.erase(sampler_order_.begin());
  }
  samplers_[id] = std::move(sampler);
  sampler_order_.push_back(id);
  drop_old_weights();
  return id;
}

// REQUIRES: the lock.
void TinkerApi::drop_old_weights() {
  std::set<const WeightsSnapshot*> kept;
  for (auto id = sampler_order_.rbegin(); id != sampler_order_.rend(); ++id) {
    Sampler& sampler = samplers_[*id];
    if (!sampler.weights || kept.contains(sampler.weights.get())) continue;
    if (kept.size() < kKeptWeights) {
      kept.insert(sampler.weights.get());
      continue;
    }
    sampler.weights = nullptr;
    sampler.is_dropped = sampler.path.empty();
    if (!sampler.is_dropped) sampler.folder = folder_of(sampler.path);
  }
}

Reply TinkerApi::create_sampling_session(Fields fields) {
  const std::string session = fields.text("session_id"), base = fields.text("base_model"),
                    path = fields.text("model_path");
  const int64_t number = fields.integer("sampling_session_seq_id", {.least = 0, .most = 1 << 22});
  fields.ignore({"type"});
  fields.refuse_others();
  touch(session);
  Sampler sampler;
  if (!path.empty()) {
    sampler.path = path;
    sampler.folder = folder_of(path);
    TrainedPolicy::read_kind(sampler.folder);  // it is there
  }
  if (!base.empty() && base != options_.model_name)
    throw bad_request("base_model is '" + base.substr(0, kMaxNameBytes) + "'; this server has " +
                          options_.model_name,
                      "base_model");
  return reply_of(
      {{"type", "create_sampling_session"},
       {"sampling_session_id", add_sampler(session, static_cast<uint64_t>(number), sampler)}});
}

Reply TinkerApi::describe_sampler(const std::string& path) {
  const std::string id = path.substr(path.rfind('/') + 1);
  const std::lock_guard lock(mutex_);
  const auto found = samplers_.find(id);
  if (found == samplers_.end())
    throw serve::not_found("there is no sampling client " + id.substr(0, kMaxNameBytes),
                           "not_found");
  const std::string& saved = found->second.path;
  return reply_of({{"sampler_id", id},
                   {"base_model", options_.model_name},
                   {"model_path", saved.empty() ? Json() : Json(saved)}});
}

Reply TinkerApi::retrieve_future(Fields fields) {
  const std::string id = fields.text("request_id");
  fields.ignore({"allow_metadata_only"});
  fields.refuse_others();
  const std::shared_ptr<Future> future = futures_.find(id);
  if (!future)
    throw serve::not_found("there is no request " + id.substr(0, kMaxNameBytes) +
                               "; its session has ended, or its result was retrieved long ago",
                           "not_found");
  const bool is_busy = ++waiting_ > options_.max_connections / 2;
  std::optional<Reply> reply;
  try {
    reply =
        future->wait(is_busy ? kBusyPollSeconds : kPollSeconds, [this] { return stops_.load(); });
  } catch (...) {
    --waiting_;
    throw;
  }
  --waiting_;
  if (!reply)
    return reply_of({{"type", "try_again"}, {"request_id", id}, {"queue_state", "active"}});
  futures_.mark_retrieved(id);
  return *reply;
}

// ---- Work.

// The version of the weights counts what has changed, even if the work ends with an error.
void TinkerApi::run_while_idle(const std::function<void()>& work) {
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

Job TinkerApi::job_of(const std::shared_ptr<Future>& future, Work work, size_t bytes) {
  const auto run = [this, future, work = std::move(work)] {
    try {
      Reply reply;
      run_while_idle([&] { reply = work(); });
      future->set(std::move(reply));
    } catch (const InputError& error) {
      future->set(failed_reply(error.what(), Blame::kUser));
    } catch (const std::exception& error) {
      log_warning("Tinker API: {}", error.what());
      future->set(failed_reply(error.what(), Blame::kServer));
    }
  };
  const auto fail = [future](const std::string& why) {
    future->set(failed_reply(why, Blame::kUser));
  };
  return {.run = run, .fail = fail, .bytes = bytes};
}

Reply TinkerApi::in_order(const std::string& model, int64_t sequence_id, Work work, size_t bytes) {
  const Training client = training(model);
  if (sequence_id == 0) sequence_id = queue_.next_id(model);
  const std::string id = fmt::format("{}:{}", model, sequence_id);
  const auto [future, is_new] = futures_.open(id, client.session);
  if (is_new) try {
      queue_.push_in_order(model, sequence_id, job_of(future, std::move(work), bytes));
    } catch (...) {
      futures_.forget(id);
      throw;
    }
  return reply_of({{"request_id", id}, {"model_id", model}});
}

std::string TinkerApi::begin_training(const std::string& session, int64_t number,
                                      const std::optional<train::LoraConfig>& adapter) {
  touch(session);
  const std::string id = fmt::format("{}:train:{}", session, number);
  const std::lock_guard lock(mutex_);
  if (training_ && training_->id == id) return id;  // the client has asked again
  if (training_) {
    const auto owner = sessions_.find(training_->session);
    if (owner != sessions_.end() && owner->second.unseen.seconds() < kSilentSeconds)
      throw bad_request(
          "this server trains one model at a time, and " + training_->id +
              " is in use; close its ServiceClient, or end its program and wait a minute",
          "session_id");
  }
  training_ = Training{.id = id, .session = session, .adapter = adapter};
  queue_.begin_model(id);
  return id;
}

// False: it is no longer there.
bool TinkerApi::forget_training(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (!training_ || training_->id != id) return false;
  training_.reset();
  queue_.end_model();
  return true;
}

// Of work that starts a training, in place of the one before it; if it fails there is none.
Reply TinkerApi::start_training(const std::string& session, const std::string& model, Work work) {
  const std::string id = model + ":create";
  const auto start = [this, model, work = std::move(work)] {
    policy_.unload();
    try {
      return work();
    } catch (...) {
      policy_.unload();
      forget_training(model);
      throw;
    }
  };
  try {
    const auto [future, is_new] = futures_.open(id, session);
    if (is_new) queue_.push(job_of(future, start));
  } catch (...) {  // too much waits: the client asks again
    futures_.forget(id);
    forget_training(model);
    throw;
  }
  return reply_of({{"request_id", id}, {"model_id", model}});
}

void TinkerApi::end_training(const std::string& id) {
  if (!forget_training(id)) return;
  queue_.push(job_of(std::make_shared<Future>(""), [this] {
    policy_.unload();
    return Reply{};
  }));
}

train::LoraConfig TinkerApi::adapter_of(Fields fields) const {
  train::LoraConfig config{.rank = fields.integer("rank", {.least = 1, .most = 4096}),
                           .alpha = options_.lora_alpha};
  const bool attention = fields.flag("train_attn", true), mlp = fields.flag("train_mlp", true);
  fields.flag("train_unembed", true);
  fields.ignore({"seed"});
  fields.refuse_others();
  TLT_CHECK_INPUT(attention || mlp,
                  "train_attn and train_mlp are false, and this server has no adapter of the "
                  "unembedding layer; set one of them");
  if (attention && !mlp) config.targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  if (!attention) config.targets = {"gate_proj", "up_proj", "down_proj"};
  config.check("lora_config");
  return config;
}

Reply TinkerApi::create_model(Fields fields) {
  const std::string session = fields.text("session_id"), base = fields.text("base_model");
  const int64_t number = fields.integer("model_seq_id", {.least = 0, .most = 1 << 22});
  const bool has_adapter = fields.find("lora_config") != nullptr;
  const auto adapter = has_adapter ? std::optional(adapter_of(object_in(fields, "lora_config")))
                                   : std::optional<train::LoraConfig>();
  const int64_t seed = object_in(fields, "lora_config")
                           .integer("seed", {.otherwise = static_cast<int64_t>(options_.seed)});
  Fields optimizer = object_in(fields, "optimizer_config");
  optimizer.accept_only("type", "adamw");
  fields.ignore({"user_metadata", "type"});
  fields.refuse_others();
  if (base != options_.model_name)
    throw bad_request("base_model is '" + base.substr(0, kMaxNameBytes) + "'; this server has " +
                          options_.model_name,
                      "base_model");
  const std::string model = begin_training(session, number, adapter);
  return start_training(session, model, [this, adapter, seed, model] {
    policy_.create(adapter, static_cast<uint64_t>(seed));
    return reply_of({{"type", "create_model"}, {"model_id", model}});
  });
}

Reply TinkerApi::unload_model(Fields fields) {
  const Training model = training(fields.text("model_id"));
  fields.ignore({"type"});
  fields.refuse_others();
  end_training(model.id);
  const std::string id = model.id + ":unload";
  const auto future = futures_.open(id, model.session).first;
  future->set(reply_of({{"type", "unload_model"}, {"model_id", model.id}}));
  return reply_of({{"request_id", id}, {"model_id", model.id}});
}

// A request that is refused takes its turn too, or those after it would wait for it.
Reply TinkerApi::forward_backward(const std::string& body) {
  TrainRequest request = TrainRequest::read(body);
  std::shared_ptr<TrainBatch> batch;
  std::string fault;
  try {
    batch = std::make_shared<TrainBatch>(make_batch(request, limits_));
  } catch (const InputError& error) {
    fault = error.what();
  }
  return in_order(
      request.model_id, request.seq_id,
      [this, batch, fault, is_backward = !request.forward_only]() -> Reply {
        TLT_CHECK_INPUT(fault.empty(), fault);
        const auto pass = policy_.forward(batch->samples, batch->loss, is_backward);
        return {.body = write_output(pass.loss, pass.logprobs),
                .content_type = "application/x-protobuf"};
      },
      4 * body.size());
}

Reply TinkerApi::optim_step(Fields fields) {
  const std::string model = fields.text("model_id");
  const int64_t sequence_id = fields.integer("seq_id", {.least = 0});
  train::OptimOptions optim;
  std::string fault;
  try {
    optim = optim_of(fields);
    fields.ignore({"type"});
    fields.refuse_others();
  } catch (const Error& error) {
    fault = error.what();
  }
  return in_order(model, sequence_id, [this, optim, fault]() -> Reply {
    TLT_CHECK_INPUT(fault.empty(), fault);
    const auto step = policy_.step(optim);
    TLT_CHECK_INPUT(step.fault.empty(),
                    "the gradient is invalid, so the step was left out: ", step.fault);
    return reply_of({{"metrics", {{"grad_norm:mean", step.norm}, {"lr:mean", optim.lr}}}});
  });
}

// ---- Saved weights.

Reply TinkerApi::save_weights(Fields fields) {
  const std::string model = fields.text("model_id");
  const int64_t sequence_id = fields.integer("seq_id", {.least = 0});
  std::string name = fields.text("path"), folder, fault;
  const bool overwrites = fields.flag("overwrite", false);
  if (name.empty()) name = fmt::format("{:06}", sequence_id);
  const std::string path = kScheme + model + "/weights/" + name;
  try {
    fields.accept_only("ttl_seconds", nullptr);
    fields.ignore({"user_metadata", "type"});
    fields.refuse_others();
    folder = folder_of(path);
  } catch (const Error& error) {
    fault = error.what();
  }
  return in_order(model, sequence_id, [this, path, folder, fault, overwrites]() -> Reply {
    TLT_CHECK_INPUT(fault.empty(), fault);
    TLT_CHECK_INPUT(overwrites || !fs::exists(folder), path,
                    " is there already; give another name, or overwrite=True");
    policy_.save(folder, /*has_optimizer=*/true);
    return reply_of({{"type", "save_weights"}, {"path", path}});
  });
}

Reply TinkerApi::save_for_sampler(Fields fields) {
  const std::string model = fields.text("model_id"), name = fields.text("path");
  const int64_t sequence_id = fields.integer("seq_id", {.least = 0}),
                number = fields.integer("sampling_session_seq_id", {.least = 0, .most = 1 << 22});
  const std::string path = kScheme + model + "/sampler_weights/" + name;
  std::string folder, fault;
  try {
    fields.accept_only("ttl_seconds", nullptr);
    fields.accept_only("kind", "snapshot");
    fields.ignore({"user_metadata", "type"});
    fields.refuse_others();
    if (!name.empty()) folder = folder_of(path);
  } catch (const Error& error) {
    fault = error.what();
  }
  const std::string session = training(model).session;
  return in_order(model, sequence_id, [=, this]() -> Reply {
    TLT_CHECK_INPUT(fault.empty(), fault);
    if (name.empty()) {
      Sampler sampler;
      sampler.weights = policy_.snapshot();
      const std::string id =
          add_sampler(session, static_cast<uint64_t>(number), std::move(sampler));
      return reply_of({{"type", "save_weights_for_sampler"}, {"sampling_session_id", id}});
    }
    TLT_CHECK_INPUT(!fs::exists(folder), path, " is there already; give another name");
    policy_.save(folder, /*has_optimizer=*/false);
    return reply_of({{"type", "save_weights_for_sampler"}, {"path", path}});
  });
}

Reply TinkerApi::load_weights(Fields fields) {
  fields.accept_only("weights_access_token", nullptr);
  fields.ignore({"type", "user_metadata", "optimizer_config"});
  if (fields.find("session_id") != nullptr) return load_new_model(std::move(fields));
  const std::string model = fields.text("model_id"), path = fields.text("path");
  const int64_t sequence_id = fields.integer("seq_id", {.least = 0});
  const bool with_optimizer = fields.flag("optimizer", false);
  return in_order(model, sequence_id, [this, model, path, with_optimizer]() -> Reply {
    policy_.load(folder_of(path), with_optimizer);
    return reply_of({{"type", "load_weights"}, {"path", path}, {"model_id", model}});
  });
}

// A training client that begins with saved weights.
Reply TinkerApi::load_new_model(Fields fields) {
  const std::string session = fields.text("session_id"), path = fields.text("path"),
                    base = fields.text("base_model");
  const int64_t number = fields.integer("model_seq_id", {.least = 0, .most = 1 << 22});
  const bool with_optimizer = fields.flag("optimizer", false);
  fields.refuse_others();
  if (!base.empty() && base != options_.model_name)
    throw bad_request("base_model is not " + options_.model_name, "base_model");
  const std::string folder = folder_of(path);
  const std::optional<train::LoraConfig> adapter = TrainedPolicy::read_kind(folder);
  const std::string model = begin_training(session, number, adapter);
  return start_training(session, model, [=, this] {
    policy_.create(adapter, options_.seed);
    policy_.load(folder, with_optimizer);
    return reply_of({{"type", "load_weights"}, {"path", path}, {"model_id", model}});
  });
}

// ---- Sampling.

Reply TinkerApi::sample(const std::string& body) {
  const auto request =
      std::make_shared<SampleRequest>(SampleRequest::read(body, limits_, loop_.max_responses()));
  std::string session;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = samplers_.find(request->sampler);
    if (found == samplers_.end())
      throw serve::not_found("there is no sampling client " +
                                 request->sampler.substr(0, kMaxNameBytes) +
                                 "; its session has ended, or it is of another start of the server",
                             "not_found");
    session = found->second.session;
    number = found->second.number;
  }
  touch(session);
  request->group.random_key = request->has_seed ? 0 : key_of(number, request->seq_id);
  if (!request->has_seed) request->group.seed = options_.seed;
  const std::string id = fmt::format("{}:{}", request->sampler, request->seq_id);
  const auto [future, is_new] = futures_.open(id, session);
  if (is_new) {
    Job job = job_of(future, {}, 4 * body.size());
    job.run = [this, future = future, request] { run_sample(future, request); };
    try {
      queue_.push(std::move(job));
    } catch (...) {
      futures_.forget(id);
      throw;
    }
  }
  Json ids = Json::array();
  for (int64_t i = 0; i < request->group.samples; ++i) ids.push_back(fmt::format("{}:{}", id, i));
  return reply_of({{"request_id", id}, {"sample_sequence_ids", ids}});
}

void TinkerApi::run_sample(const std::shared_ptr<Future>& future,
                           const std::shared_ptr<SampleRequest>& request) {
  try {
    show(request->sampler);
    std::vector<float> prompt_logprobs;
    if (request->wants_prompt_logprobs)
      run_while_idle([&] { prompt_logprobs = score_prompt(*request); });
    std::shared_ptr<serve::ResponseChannel> channel;
    while (!channel) {
      try {
        channel = loop_.submit({.groups = {request->group}});
      } catch (const serve::ApiError& error) {
        if (error.status != 429 || stops_) throw;
        std::this_thread::sleep_for(kFullInterval);
      }
    }
    future->set(std::make_unique<SampleCollector>(std::move(channel), request->group.samples,
                                                  std::move(prompt_logprobs),
                                                  request->topk_sample_logprobs));
  } catch (const InputError& error) {
    future->set(failed_reply(error.what(), Blame::kUser));
  } catch (const std::exception& error) {
    future->set(failed_reply(error.what(), Blame::kServer));
  }
}

// Makes the policy's weights those of a sampler; without waiting for the engine if they are.
void TinkerApi::show(const std::string& id) {
  Sampler sampler;
  {
    const std::lock_guard lock(mutex_);
    const auto found = samplers_.find(id);
    TLT_CHECK_INPUT(found != samplers_.end(), "the session of this sampling client has ended");
    sampler = found->second;
  }
  TLT_CHECK_INPUT(!sampler.is_dropped, "the weights of this sampling client are not kept, since ",
                  kKeptWeights,
                  " newer ones are; use the newest, or save_weights_for_sampler(name=…)");
  if (sampler.folder.empty()) {
    if (!policy_.shows(sampler.weights)) run_while_idle([&] { policy_.show(sampler.weights); });
    return;
  }
  run_while_idle([&] { sampler.weights = policy_.show_folder(sampler.folder); });
  const std::lock_guard lock(mutex_);
  if (const auto found = samplers_.find(id); found != samplers_.end()) {
    found->second.weights = sampler.weights;
    found->second.folder.clear();
    drop_old_weights();
  }
}

// NaN for the first token and those before the last n.
std::vector<float> TinkerApi::score_prompt(const SampleRequest& request) {
  const std::vector<int32_t>& tokens = request.group.tokens;
  const int64_t size = std::ssize(tokens), last = request.prompt_logprobs_last_n,
                first = last > 0 ? std::max<int64_t>(1, size - last) : 1;
  std::vector<float> logprobs(tokens.size(), std::numeric_limits<float>::quiet_NaN());
  if (first >= size) return logprobs;
  train::TrainSample sample;
  sample.tokens = tokens;
  sample.response_begin = static_cast<int32_t>(first);
  const std::vector<float> scored = policy_.score(sample);
  std::ranges::copy(scored, logprobs.begin() + first);
  return logprobs;
}

}  // namespace tlt::tinker
