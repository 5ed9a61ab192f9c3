// SPDX-License-Identifier: Apache-2.0
#include "tinker/sample_request.h"

#include <algorithm>

#include "base/check.h"
#include "serve/api_error.h"
#include "serve/request_fields.h"

namespace tlt::tinker {
namespace {

using serve::RequestFields;

constexpr int64_t kMaxTopLogprobs = 20;
constexpr size_t kMaxStops = 64;

// The tokens of {"chunks": [{"type": "encoded_text", "tokens": […]}, …]}.
std::vector<int32_t> tokens_of(const RequestFields::Json* prompt, const TokenLimits& limits) {
  TLT_CHECK_INPUT(prompt != nullptr && prompt->is_object() && prompt->contains("chunks") &&
                      (*prompt)["chunks"].is_array(),
                  "prompt is not a ModelInput; give {\"chunks\": […]}");
  std::vector<int32_t> tokens;
  for (const auto& chunk : (*prompt)["chunks"]) {
    TLT_CHECK_INPUT(chunk.is_object() && chunk.contains("tokens") && chunk["tokens"].is_array(),
                    "prompt has a chunk that is not of tokens; only EncodedTextChunk is available");
    for (const auto& token : chunk["tokens"]) {
      TLT_CHECK_INPUT(token.is_number_integer() && token >= 0 && token < limits.vocabulary,
                      "prompt has a token that is not from 0 to ", limits.vocabulary - 1);
      tokens.push_back(token.get<int32_t>());
    }
  }
  TLT_CHECK_INPUT(!tokens.empty() && std::ssize(tokens) < limits.max_positions, "prompt has ",
                  tokens.size(), " tokens; give from 1 to ", limits.max_positions - 1);
  return tokens;
}

// null: the model's end-of-sequence tokens; a list replaces them.
void read_stop(const RequestFields::Json* stop, const TokenLimits& limits,
               rollout::SamplingOptions& sampling) {
  if (stop == nullptr) return;
  sampling.ignore_eos = true;
  if (stop->is_string()) {
    sampling.stop = {stop->get<std::string>()};
  } else {
    TLT_CHECK_INPUT(stop->is_array() && stop->size() <= kMaxStops,
                    "stop is not a string or a list of at most ", kMaxStops,
                    " strings or token ids");
    for (const auto& item : *stop) {
      if (item.is_string()) {
        sampling.stop.push_back(item.get<std::string>());
        continue;
      }
      TLT_CHECK_INPUT(item.is_number_integer() && item >= 0 && item < limits.vocabulary,
                      "stop has an item that is neither a string nor a token id");
      sampling.stop_tokens.push_back(item.get<int64_t>());
    }
  }
  TLT_CHECK_INPUT(std::ranges::none_of(sampling.stop, &std::string::empty),
                  "stop has an empty string");
}

void read_sampling(RequestFields fields, const TokenLimits& limits, SampleRequest& request) {
  rollout::SamplingOptions sampling;
  const int64_t room = limits.max_positions - std::ssize(request.group.tokens);
  sampling.max_new_tokens =
      std::min(room, fields.integer("max_tokens", {.otherwise = room, .least = 1}));
  sampling.temperature = fields.number("temperature", 1);
  sampling.top_k = fields.integer("top_k", {.otherwise = -1});
  sampling.top_p = fields.number("top_p", 1);
  read_stop(fields.find("stop"), limits, sampling);
  request.has_seed = fields.find("seed") != nullptr;
  request.group.seed = static_cast<uint64_t>(fields.integer("seed", {}));
  fields.refuse_others();
  sampling.check();
  request.group.sampling = std::make_shared<const rollout::SamplingOptions>(std::move(sampling));
}

}  // namespace

SampleRequest SampleRequest::read(std::string_view body, const TokenLimits& limits,
                                  int64_t max_samples) {
  RequestFields fields(body);
  SampleRequest request;
  request.sampler = fields.text("sampling_session_id");
  request.seq_id = fields.integer("seq_id", {.least = 0});
  if (request.sampler.empty() || fields.find("seq_id") == nullptr)
    throw serve::bad_request(
        "sampling_session_id and seq_id are missing; create a sampling client first",
        "sampling_session_id");
  request.group.tokens = tokens_of(fields.find("prompt"), limits);
  request.group.samples =
      fields.integer("num_samples", {.otherwise = 1, .least = 1, .most = max_samples});
  TLT_CHECK_INPUT(fields.find("sampling_params") != nullptr,
                  "sampling_params is missing; give an object");
  read_sampling(fields.object("sampling_params"), limits, request);
  request.wants_prompt_logprobs = fields.flag("prompt_logprobs", false);
  request.prompt_logprobs_last_n = fields.integer(
      "prompt_logprobs_last_n",
      {.least = 1, .most = std::max<int64_t>(1, std::ssize(request.group.tokens) - 1)});
  request.topk_sample_logprobs = request.group.top_logprobs = fields.integer(
      "topk_sample_logprobs", {.least = 0, .most = std::min(kMaxTopLogprobs, limits.vocabulary)});
  fields.accept_only("topk_prompt_logprobs", 0);
  fields.accept_only("target_prompt_logprobs", nullptr);
  fields.accept_only("prompt_alt_tokens_k", 0);
  fields.accept_only("record_stability_info", false);
  fields.accept_only("base_model", nullptr);
  fields.accept_only("model_path", nullptr);
  fields.ignore({"type"});
  fields.refuse_others();
  return request;
}

}  // namespace tlt::tinker
