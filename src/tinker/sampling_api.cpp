// SPDX-License-Identifier: Apache-2.0
#include "tinker/sampling_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/check.h"
#include "serve/api_error.h"
#include "tinker/replies.h"
#include "tinker/saved_path.h"

namespace tlt::tinker {
namespace {

using Json = nlohmann::ordered_json;
using serve::Reply;

constexpr size_t kMaxSamplers = 8192;
// Snapshots that samplers without a name keep in memory: the newest ones.
constexpr size_t kKeptWeights = 16;
constexpr auto kFullInterval = std::chrono::milliseconds(5);

// Tells a sampling without a seed from the others of its session: uniforms belong to this key.
uint64_t key_of(uint64_t sampler, int64_t request) {
  return sampler << 40 ^ static_cast<uint64_t>(request);
}

}  // namespace

std::string SamplingApi::add(const std::string& session, uint64_t number, Weights weights) {
  Sampler sampler;
  sampler.session = session;
  sampler.number = number;
  sampler.weights = std::move(weights);
  return add(std::move(sampler));
}

std::string SamplingApi::add(Sampler sampler) {
  std::string id = fmt::format("{}:sample:{}", sampler.session, sampler.number);
  const std::lock_guard lock(mutex_);
  // With the lock: a session that ends after this finds the sampler in forget_session().
  parts_.sessions.touch(sampler.session);
  if (samplers_.contains(id)) return id;  // the client has asked again
  if (samplers_.size() >= kMaxSamplers) {
    samplers_.erase(order_.front());
    order_.erase(order_.begin());
  }
  samplers_[id] = std::move(sampler);
  order_.push_back(id);
  drop_old_weights();
  return id;
}

// REQUIRES: the lock.
void SamplingApi::drop_old_weights() {
  std::set<const WeightsSnapshot*> kept;
  for (auto id = order_.rbegin(); id != order_.rend(); ++id) {
    Sampler& sampler = samplers_[*id];
    if (!sampler.weights || kept.contains(sampler.weights.get())) continue;
    if (kept.size() < kKeptWeights) {
      kept.insert(sampler.weights.get());
      continue;
    }
    sampler.weights = nullptr;
    sampler.is_dropped = sampler.path.empty();
    if (!sampler.is_dropped) sampler.folder = folder_of(parts_.options.save_folder, sampler.path);
  }
}

void SamplingApi::forget_session(const std::string& session) {
  const std::lock_guard lock(mutex_);
  std::erase_if(samplers_, [&](const auto& entry) { return entry.second.session == session; });
  std::erase_if(order_, [&](const std::string& id) { return !samplers_.contains(id); });
}

// ApiError (404): there is none.
SamplingApi::Sampler SamplingApi::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = samplers_.find(id);
  if (found == samplers_.end())
    throw serve::not_found("there is no sampling client " + id.substr(0, kMaxNameBytes) +
                               "; its session has ended, or it is of another start of the server",
                           "not_found");
  return found->second;
}

Reply SamplingApi::create_session(serve::RequestFields fields) {
  const std::string base = fields.text("base_model");
  Sampler sampler;
  sampler.session = fields.text("session_id");
  sampler.path = fields.text("model_path");
  sampler.number = static_cast<uint64_t>(
      fields.integer("sampling_session_seq_id", {.least = 0, .most = kMaxClientNumber}));
  fields.ignore({"type"});
  fields.refuse_others();
  parts_.sessions.touch(sampler.session);
  if (!sampler.path.empty()) {
    sampler.folder = folder_of(parts_.options.save_folder, sampler.path);
    TrainedPolicy::read_kind(sampler.folder);  // it is there
  }
  if (!base.empty()) check_base_model(base, parts_.options.model_name);
  return json_reply(
      {{"type", "create_sampling_session"}, {"sampling_session_id", add(std::move(sampler))}});
}

Reply SamplingApi::describe(const std::string& path) {
  const std::string id = path.substr(path.rfind('/') + 1);
  const std::string saved = find(id).path;
  return json_reply({{"sampler_id", id},
                     {"base_model", parts_.options.model_name},
                     {"model_path", saved.empty() ? Json() : Json(saved)}});
}

Reply SamplingApi::sample(const std::string& body) {
  const auto request = std::make_shared<SampleRequest>(
      SampleRequest::read(body, parts_.limits, parts_.runner.loop().max_responses()));
  const Sampler sampler = find(request->sampler);
  parts_.sessions.touch(sampler.session);
  request->group.random_key = request->has_seed ? 0 : key_of(sampler.number, request->seq_id);
  if (!request->has_seed) request->group.seed = parts_.options.seed;
  const std::string id = fmt::format("{}:{}", request->sampler, request->seq_id);
  parts_.runner.push({.id = id, .session = sampler.session, .bytes = 4 * body.size()},
                     [this, request](Future& future) { run(future, *request); });
  Json ids = Json::array();
  for (int64_t i = 0; i < request->group.samples; ++i) ids.push_back(fmt::format("{}:{}", id, i));
  return json_reply({{"request_id", id}, {"sample_sequence_ids", ids}});
}

void SamplingApi::run(Future& future, const SampleRequest& request) {
  std::optional<Reply> failure = reply_or_failure([&]() -> std::optional<Reply> {
    show(request.sampler);
    std::vector<float> prompt_logprobs;
    std::shared_ptr<serve::ResponseChannel> channel;
    wait_for_room([&] {
      if (request.wants_prompt_logprobs) prompt_logprobs = score_prompt(request);
    });
    wait_for_room([&] { channel = parts_.runner.loop().submit({.groups = {request.group}}); });
    future.set(std::make_unique<SampleCollector>(std::move(channel), request.group.samples,
                                                 std::move(prompt_logprobs),
                                                 request.topk_sample_logprobs));
    return std::nullopt;
  });
  if (failure) future.set(std::move(*failure));
}

// Calls again while the server has no room.
void SamplingApi::wait_for_room(const std::function<void()>& call) const {
  while (true) {
    try {
      return call();
    } catch (const serve::ApiError& error) {
      if (error.status != 429 || parts_.runner.is_stopping()) throw;
      std::this_thread::sleep_for(kFullInterval);
    }
  }
}

// Makes the policy's weights those of a sampler; without waiting for the engine if they are.
void SamplingApi::show(const std::string& id) {
  Sampler sampler = find(id);
  TLT_CHECK_INPUT(!sampler.is_dropped, "the weights of this sampling client are not kept, since ",
                  kKeptWeights,
                  " newer ones are; use the newest, or save_weights_for_sampler(name=…)");
  if (sampler.folder.empty()) {
    if (!parts_.policy.shows(sampler.weights))
      parts_.runner.run_while_idle([&] { parts_.policy.show(sampler.weights); });
    return;
  }
  parts_.runner.run_while_idle(
      [&] { sampler.weights = parts_.policy.show_folder(sampler.folder); });
  const std::lock_guard lock(mutex_);
  if (const auto found = samplers_.find(id); found != samplers_.end()) {
    found->second.weights = sampler.weights;
    found->second.folder.clear();
    drop_old_weights();
  }
}

// NaN for the first token and those before the last n.
std::vector<float> SamplingApi::score_prompt(const SampleRequest& request) const {
  const std::vector<int32_t>& tokens = request.group.tokens;
  const int64_t size = std::ssize(tokens), last = request.prompt_logprobs_last_n,
                first = last > 0 ? std::max<int64_t>(1, size - last) : 1;
  std::vector<float> logprobs(tokens.size(), std::numeric_limits<float>::quiet_NaN());
  if (first >= size) return logprobs;
  const std::vector<float> scored = parts_.runner.loop().score({tokens}).logprobs.front();
  std::copy(scored.begin() + (first - 1), scored.end(), logprobs.begin() + first);
  return logprobs;
}

}  // namespace tlt::tinker
