// SPDX-License-Identifier: Apache-2.0
#include "tinker/training_api.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/check.h"
#include "serve/api_error.h"
#include "tinker/replies.h"
#include "tinker/saved_path.h"

namespace tlt::tinker {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using serve::Reply;
using serve::RequestFields;

// What is wrong with a request, as `read` throws it; empty: nothing.
template <class Read>
std::string fault_of(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

train::OptimOptions optim_of(RequestFields& fields) {
  RequestFields adam = fields.object("adam_params");
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

// Fields that every request that saves may have.
void read_common(RequestFields& fields) {
  fields.integer("ttl_seconds", {.otherwise = 1, .least = 1});  // nothing is deleted
  fields.ignore({"user_metadata", "type"});
  fields.refuse_others();
}

}  // namespace

// ---- Which model is trained.

TrainingApi::Training TrainingApi::training(const std::string& id) {
  Training found;
  {
    const std::lock_guard lock(mutex_);
    if (!training_ || training_->id != id)
      throw serve::not_found("there is no model " + id.substr(0, kMaxNameBytes) +
                                 "; its session has ended, or it is of another start of the server",
                             "model_not_found");
    found = *training_;
  }
  parts_.sessions.touch(found.session);
  return found;
}

std::string TrainingApi::begin(const std::string& session, int64_t number, const Adapter& adapter) {
  std::string id = fmt::format("{}:train:{}", session, number);
  const std::lock_guard lock(mutex_);
  // With the lock: a session that ends after this finds the training in end_session().
  parts_.sessions.touch(session);
  if (training_ && training_->id == id) return id;  // the client has asked again
  if (training_ && !parts_.sessions.is_silent(training_->session))
    throw serve::bad_request(
        "this server trains one model at a time, and " + training_->id +
            " is in use; close its ServiceClient, or end its program and wait a minute",
        "session_id");
  training_ = Training{.id = id, .session = session, .adapter = adapter};
  parts_.runner.begin_model(id);
  return id;
}

// False: it is no longer there.
bool TrainingApi::forget(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (!training_ || training_->id != id) return false;
  training_.reset();
  parts_.runner.end_model();
  return true;
}

// Work that starts a training, in place of the one before it; if it fails there is none.
Reply TrainingApi::start(const std::string& session, const std::string& model, Work work) {
  const std::string id = model + ":create";
  const auto run = [this, model, work = std::move(work)] {
    parts_.policy.unload();
    try {
      return work();
    } catch (...) {
      parts_.policy.unload();
      forget(model);
      throw;
    }
  };
  try {
    parts_.runner.push({.id = id, .session = session}, Work(run));
  } catch (...) {  // too much waits: the client asks again
    forget(model);
    throw;
  }
  return json_reply({{"request_id", id}, {"model_id", model}});
}

void TrainingApi::end(const std::string& id) {
  if (!forget(id)) return;
  parts_.runner.push_unanswered([this] {
    parts_.policy.unload();
    return Reply{};
  });
}

void TrainingApi::end_session(const std::string& session) {
  std::string id;
  {
    const std::lock_guard lock(mutex_);
    if (training_ && training_->session == session) id = training_->id;
  }
  if (!id.empty()) end(id);
}

train::LoraConfig TrainingApi::adapter_of(Fields fields) const {
  train::LoraConfig config{.rank = fields.integer("rank", {.least = 1, .most = 4096}),
                           .alpha = parts_.options.lora_alpha};
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

Reply TrainingApi::create_model(Fields fields) {
  const std::string session = fields.text("session_id"), base = fields.text("base_model");
  const int64_t number = fields.integer("model_seq_id", {.least = 0, .most = kMaxClientNumber});
  Fields lora = fields.object("lora_config");
  const int64_t seed =
      lora.integer("seed", {.otherwise = static_cast<int64_t>(parts_.options.seed)});
  Adapter adapter;
  if (fields.find("lora_config") != nullptr) adapter = adapter_of(std::move(lora));
  fields.object("optimizer_config").accept_only("type", "adamw");
  fields.ignore({"user_metadata", "type"});
  fields.refuse_others();
  check_base_model(base, parts_.options.model_name);
  const std::string model = begin(session, number, adapter);
  return start(session, model, [this, adapter, seed, model] {
    parts_.policy.create(adapter, static_cast<uint64_t>(seed));
    return json_reply({{"type", "create_model"}, {"model_id", model}});
  });
}

Reply TrainingApi::unload_model(Fields fields) {
  const Training model = training(fields.text("model_id"));
  fields.ignore({"type"});
  fields.refuse_others();
  end(model.id);
  const std::string id = model.id + ":unload";
  parts_.runner.add({.id = id, .session = model.session},
                    json_reply({{"type", "unload_model"}, {"model_id", model.id}}));
  return json_reply({{"request_id", id}, {"model_id", model.id}});
}

Reply TrainingApi::get_info(Fields fields) {
  const Training model = training(fields.text("model_id"));
  return json_reply(
      {{"type", "get_info"},
       {"model_data",
        {{"model_name", parts_.options.model_name},
         {"tokenizer_id", fs::absolute(parts_.options.model_folder).lexically_normal().string()}}},
       {"model_id", model.id},
       {"model_name", parts_.options.model_name},
       {"optimizer_config", {{"type", "adamw"}}},
       {"is_lora", model.adapter.has_value()},
       {"lora_rank", model.adapter ? Json(model.adapter->rank) : Json()}});
}

Reply TrainingApi::weights_info(Fields fields) {
  const Adapter adapter = TrainedPolicy::read_kind(folder_of(fields.text("tinker_path")));
  return json_reply({{"base_model", parts_.options.model_name},
                     {"is_lora", adapter.has_value()},
                     {"lora_rank", adapter ? Json(adapter->rank) : Json()}});
}

// ---- Gradients and steps.

TrainingApi::Place TrainingApi::place_of(Fields& fields) {
  return {.model = fields.text("model_id"),
          .sequence_id = fields.integer("seq_id", {.least = 0}),
          .bytes = 0};
}

Reply TrainingApi::in_order(const Place& place, const std::string& fault, Work work) {
  const std::string session = training(place.model).session;
  if (!fault.empty()) work = [fault]() -> Reply { throw InputError(fault); };
  return parts_.runner.push_in_order({.model = place.model,
                                      .session = session,
                                      .sequence_id = place.sequence_id,
                                      .bytes = place.bytes},
                                     std::move(work));
}

Reply TrainingApi::forward_backward(const std::string& body) {
  const TrainRequest request = TrainRequest::read(body);
  const auto batch = std::make_shared<TrainBatch>();
  const std::string fault = fault_of([&] { *batch = make_batch(request, parts_.limits); });
  return in_order(
      {.model = request.model_id, .sequence_id = request.seq_id, .bytes = 4 * body.size()}, fault,
      [this, batch, is_backward = !request.forward_only]() -> Reply {
        const auto pass = parts_.policy.forward(*batch, is_backward);
        return {.body = write_output(pass.loss, pass.logprobs),
                .content_type = "application/x-protobuf"};
      });
}

Reply TrainingApi::optim_step(Fields fields) {
  const Place place = place_of(fields);
  train::OptimOptions optim;
  const std::string fault = fault_of([&] {
    optim = optim_of(fields);
    fields.ignore({"type"});
    fields.refuse_others();
  });
  return in_order(place, fault, [this, optim] {
    const auto step = parts_.policy.step(optim);
    TLT_CHECK_INPUT(step.fault.empty(),
                    "the gradient is invalid, so the step was left out: ", step.fault);
    return json_reply({{"metrics", {{"grad_norm:mean", step.norm}, {"lr:mean", optim.lr}}}});
  });
}

// ---- Saved weights.

std::string TrainingApi::folder_of(const std::string& path) const {
  return tinker::folder_of(parts_.options.save_folder, path);
}

Reply TrainingApi::save_weights(Fields fields) {
  const Place place = place_of(fields);
  const bool overwrites = fields.flag("overwrite", false);
  std::string name = fields.text("path"), folder;
  if (name.empty()) name = fmt::format("{:06}", place.sequence_id);
  const std::string path = weights_path(place.model, name);
  const std::string fault = fault_of([&] {
    read_common(fields);
    folder = folder_of(path);
  });
  return in_order(place, fault, [this, path, folder, overwrites] {
    TLT_CHECK_INPUT(overwrites || !fs::exists(folder), path,
                    " is there already; give another name, or overwrite=True");
    parts_.policy.save(folder, /*has_optimizer=*/true);
    return json_reply({{"type", "save_weights"}, {"path", path}});
  });
}

Reply TrainingApi::save_for_sampler(Fields fields) {
  const Place place = place_of(fields);
  const auto number = static_cast<uint64_t>(
      fields.integer("sampling_session_seq_id", {.least = 0, .most = kMaxClientNumber}));
  const std::string name = fields.text("path"), path = sampler_weights_path(place.model, name);
  std::string folder;
  const std::string fault = fault_of([&] {
    fields.accept_only("kind", "snapshot");
    read_common(fields);
    if (!name.empty()) folder = folder_of(path);
  });
  const std::string session = training(place.model).session;
  return in_order(place, fault, [this, session, number, path, folder] {
    if (folder.empty())
      return json_reply(
          {{"type", "save_weights_for_sampler"},
           {"sampling_session_id", samplers_.add(session, number, parts_.policy.snapshot())}});
    TLT_CHECK_INPUT(!fs::exists(folder), path, " is there already; give another name");
    parts_.policy.save(folder, /*has_optimizer=*/false);
    return json_reply({{"type", "save_weights_for_sampler"}, {"path", path}});
  });
}

Reply TrainingApi::load_weights(Fields fields) {
  fields.accept_only("weights_access_token", nullptr);
  fields.ignore({"type", "user_metadata", "optimizer_config"});
  if (fields.find("session_id") != nullptr) return load_new_model(std::move(fields));
  const Place place = place_of(fields);
  const std::string path = fields.text("path");
  const bool with_optimizer = fields.flag("optimizer", false);
  return in_order(place, /*fault=*/"", [this, model = place.model, path, with_optimizer] {
    parts_.policy.load(folder_of(path), with_optimizer);
    return json_reply({{"type", "load_weights"}, {"path", path}, {"model_id", model}});
  });
}

// A training client that begins with saved weights.
Reply TrainingApi::load_new_model(Fields fields) {
  const std::string session = fields.text("session_id"), path = fields.text("path"),
                    base = fields.text("base_model");
  const int64_t number = fields.integer("model_seq_id", {.least = 0, .most = kMaxClientNumber});
  const bool with_optimizer = fields.flag("optimizer", false);
  fields.refuse_others();
  if (!base.empty()) check_base_model(base, parts_.options.model_name);
  const std::string folder = folder_of(path);
  const Adapter adapter = TrainedPolicy::read_kind(folder);
  const std::string model = begin(session, number, adapter);
  return start(session, model, [=, this] {
    parts_.policy.create(adapter, parts_.options.seed);
    parts_.policy.load(folder, with_optimizer);
    return json_reply({{"type", "load_weights"}, {"path", path}, {"model_id", model}});
  });
}

}  // namespace tlt::tinker
