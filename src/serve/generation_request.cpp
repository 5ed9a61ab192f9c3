// SPDX-License-Identifier: Apache-2.0
#include "serve/generation_request.h"

#include <algorithm>
#include <random>

#include "base/check.h"
#include "ops/batch.h"
#include "serve/api_error.h"
#include "serve/messages.h"

namespace tlt::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxTopLogprobs = 20;    // as in OpenAI's API
constexpr int64_t kCompletionTokens = 16;  // of a response without max_tokens, as there
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
// In one answer, in which each choice has those of its prompt.
constexpr int64_t kMaxPromptLogprobs = int64_t{1} << 20;

// A seed that every JSON reader keeps, so that the answer's can be given again.
uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 21 ^ device()) & ((uint64_t{1} << 53) - 1);
}

// As in vLLM, 0 is the logprobs of the prompt's tokens, and n those of the n most probable ones,
// too.
bool wants_prompt_logprobs(RequestFields& fields) {
  const Json* const count = fields.find("prompt_logprobs");
  if (count == nullptr) return false;
  if (*count != 0)
    throw bad_request("prompt_logprobs is " +
                          count->dump(-1, ' ', false, Json::error_handler_t::replace) +
                          ", and only 0 is supported: the logprobs of the prompt's own tokens",
                      "prompt_logprobs");
  if (fields.flag("stream", false))
    throw bad_request("prompt_logprobs are not streamed; leave out \"stream\"", "prompt_logprobs");
  return true;
}

// Throws the InputError of a lower layer as an ApiError of this field.
template <class Call>
auto with_field(const char* field, Call call) {
  try {
    return call();
  } catch (const InputError& error) {
    throw bad_request(error.what(), field);
  }
}

}  // namespace

GenerationRequest RequestParser::completion(std::string_view body) const {
  RequestFields fields(body);
  GenerationRequest request;
  request.prompts = prompts_of(fields);
  if (const Json* logprobs = fields.find("logprobs"); logprobs != nullptr) {
    request.wants_logprobs = true;
    request.top_logprobs = fields.integer("logprobs", {.least = 0, .most = kMaxTopLogprobs});
  }
  request.wants_prompt_logprobs = wants_prompt_logprobs(fields);
  fields.accept_only("echo", false);
  fields.accept_only("best_of", fields.integer("n", {.otherwise = 1}));
  fields.accept_only("suffix", "");
  read_common(fields, request);
  return request;
}

GenerationRequest RequestParser::chat(std::string_view body) const {
  RequestFields fields(body);
  GenerationRequest request;
  request.is_chat = true;
  request.prompts = {messages_of(fields, request.has_tools)};
  request.wants_logprobs = fields.flag("logprobs", false);
  request.top_logprobs =
      fields.integer("top_logprobs", {.otherwise = 0, .least = 0, .most = kMaxTopLogprobs});
  if (request.top_logprobs > 0 && !request.wants_logprobs)
    throw bad_request("top_logprobs needs \"logprobs\": true", "top_logprobs");
  fields.accept_only("response_format", Json{{"type", "text"}});
  fields.ignore({"parallel_tool_calls"});
  read_common(fields, request);
  return request;
}

void RequestParser::read_common(RequestFields& fields, GenerationRequest& request) const {
  check_model(fields);
  request.n = fields.integer("n", {.otherwise = 1, .least = 1, .most = model_.max_choices});
  request.streams = fields.flag("stream", false);
  if (const Json* options = fields.find("stream_options"); options != nullptr) {
    if (!options->is_object() || !request.streams)
      throw bad_request("stream_options is an object, for \"stream\": true", "stream_options");
    request.includes_usage = options->value("include_usage", Json(false)) == Json(true);
  }
  request.returns_token_ids = fields.flag("return_token_ids", false);
  request.skips_special_tokens = fields.flag("skip_special_tokens", true);
  const bool has_seed = fields.find("seed") != nullptr;
  request.seed =
      has_seed ? static_cast<uint64_t>(fields.integer("seed", {.least = 0})) : random_seed();
  check_prompts(request);
  set_sampling(fields, request);
  for (const char* name : {"presence_penalty", "frequency_penalty"}) fields.accept_only(name, 0);
  fields.accept_only("repetition_penalty", 1);
  fields.accept_only("logit_bias", Json::object());
  fields.ignore(
      {"user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"});
  fields.refuse_others();
}

void RequestParser::set_sampling(RequestFields& fields, GenerationRequest& request) const {
  rollout::SamplingOptions sampling;
  sampling.temperature = fields.number("temperature", sampling.temperature);
  sampling.top_p = fields.number("top_p", sampling.top_p);
  sampling.min_p = fields.number("min_p", sampling.min_p);
  const int64_t top_k = fields.integer("top_k", {.otherwise = -1, .least = -1, .most = INT32_MAX});
  sampling.top_k = top_k == 0 ? -1 : top_k;
  sampling.ignore_eos = fields.flag("ignore_eos", false);
  sampling.stop = fields.texts("stop");
  sampling.stop_tokens = fields.integers("stop_token_ids");
  const bool is_long = std::ranges::any_of(
      sampling.stop, [](const std::string& stop) { return stop.size() > kMaxStopBytes; });
  if (sampling.stop.size() > kMaxStops || sampling.stop_tokens.size() > kMaxStops || is_long)
    throw bad_request("stop has more than " + std::to_string(kMaxStops) +
                          " strings, or one of more than " + std::to_string(kMaxStopBytes) +
                          " bytes",
                      "stop");
  size_t longest = 0;
  for (const auto& prompt : request.prompts) longest = std::max(longest, prompt.size());
  const auto prompt = static_cast<int64_t>(longest);
  // One page more: a sample of several copies the last page of its prompt.
  const int64_t room = std::max<int64_t>(
      std::min(model_.max_positions, model_.max_cache_tokens - ops::kPageSlots) - prompt, 1);
  const RequestFields::Integers range{.otherwise = 0, .least = 1, .most = INT32_MAX};
  const int64_t newer = fields.integer("max_completion_tokens", range);
  const int64_t older = fields.integer("max_tokens", range);
  sampling.max_new_tokens = std::max(newer, older);
  if (sampling.max_new_tokens == 0)
    sampling.max_new_tokens = request.is_chat ? room : std::min(room, kCompletionTokens);
  with_field("", [&] { sampling.check(); });
  request.sampling = std::make_shared<const rollout::SamplingOptions>(std::move(sampling));
}

void RequestParser::check_model(RequestFields& fields) const {
  const std::string name = fields.text("model");
  if (!name.empty() && name != model_.name)
    throw not_found("there is no model " + name + " here; this server has " + model_.name,
                    "model_not_found");
}

void RequestParser::check_prompts(const GenerationRequest& request) const {
  if (request.choices() > model_.max_choices)
    throw bad_request(std::to_string(request.choices()) +
                          " responses in one request; this server takes at most " +
                          std::to_string(model_.max_choices),
                      "n");
  for (const auto& prompt : request.prompts) {
    if (std::ssize(prompt) < model_.max_positions) continue;
    throw ApiError(400, "invalid_request_error",
                   "the prompt has " + std::to_string(prompt.size()) + " tokens and the model " +
                       std::to_string(model_.max_positions) + " positions; give a shorter prompt",
                   request.is_chat ? "messages" : "prompt", "context_length_exceeded");
  }
  int64_t listed = 0;
  for (const auto& prompt : request.prompts) listed += request.n * std::ssize(prompt);
  if (request.wants_prompt_logprobs && listed > kMaxPromptLogprobs)
    throw bad_request(std::to_string(listed) +
                          " prompt_logprobs in one answer; this server gives at most " +
                          std::to_string(kMaxPromptLogprobs) + ": send several requests",
                      "prompt_logprobs");
}

std::vector<int32_t> RequestParser::encode(const std::string& text, const char* field) const {
  std::vector<int32_t> tokens = with_field(field, [&] { return model_.tokenizer.encode(text); });
  if (tokens.empty()) throw bad_request("the prompt has no tokens; give at least one", field);
  return tokens;
}

std::vector<int32_t> RequestParser::token_ids(const Json& list, const char* field) const {
  std::vector<int32_t> tokens;
  for (const Json& item : list) {
    const bool is_id = item.is_number_integer() && item >= 0 && item < model_.vocabulary;
    if (!is_id)
      throw bad_request(item.dump(-1, ' ', false, Json::error_handler_t::replace) +
                            " is not a token of this model; give integers from 0 to " +
                            std::to_string(model_.vocabulary - 1),
                        field);
    tokens.push_back(item.get<int32_t>());
  }
  if (tokens.empty()) throw bad_request("the prompt has no tokens; give at least one", field);
  return tokens;
}

std::vector<std::vector<int32_t>> RequestParser::prompts_of(RequestFields& fields) const {
  const Json* prompt = fields.find("prompt");
  if (prompt != nullptr && prompt->is_string())
    return {encode(prompt->get<std::string>(), "prompt")};
  if (prompt == nullptr || !prompt->is_array() || prompt->empty())
    throw bad_request(
        "prompt is missing; give a string, a list of strings, a list of token ids, or a list of "
        "such "
        "lists",
        "prompt");
  if (prompt->front().is_number()) return {token_ids(*prompt, "prompt")};
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& item : *prompt) {
    if (std::ssize(prompts) >= model_.max_choices)
      throw bad_request("more than " + std::to_string(model_.max_choices) + " prompts", "prompt");
    if (item.is_string())
      prompts.push_back(encode(item.get<std::string>(), "prompt"));
    else if (item.is_array())
      prompts.push_back(token_ids(item, "prompt"));
    else
      throw bad_request("a prompt is neither a string nor a list of token ids", "prompt");
  }
  return prompts;
}

std::vector<int32_t> RequestParser::messages_of(RequestFields& fields, bool& has_tools) const {
  if (!model_.chat_template)
    throw bad_request("the model has no chat template; use /v1/completions", "messages");
  const Json* messages = fields.find("messages");
  chat_template::Chat chat{.messages = template_messages(messages ? *messages : Json()),
                           .add_generation_prompt = true};
  const Json* tools = fields.find("tools");
  if (tools != nullptr) check_tools(*tools);
  const Json* choice = fields.find("tool_choice");
  if (choice != nullptr && *choice != "auto" && *choice != "none")
    throw bad_request("tool_choice is auto or none; other choices are not supported",
                      "tool_choice");
  has_tools = tools != nullptr && !tools->empty() && (choice == nullptr || *choice == "auto");
  if (has_tools) chat.tools = *tools;
  if (const Json* variables = fields.find("chat_template_kwargs"); variables != nullptr) {
    if (!variables->is_object())
      throw bad_request("chat_template_kwargs is not an object", "chat_template_kwargs");
    chat.variables = *variables;
  }
  const std::string text =
      with_field("messages", [&] { return model_.chat_template->render(chat, "messages").text; });
  return encode(text, "messages");
}

std::vector<int32_t> RequestParser::tokenize(std::string_view body) const {
  RequestFields fields(body);
  check_model(fields);
  fields.accept_only("add_special_tokens", false);
  std::vector<int32_t> tokens;
  if (fields.find("messages") != nullptr) {
    bool has_tools = false;
    tokens = messages_of(fields, has_tools);
  } else {
    const Json* prompt = fields.find("prompt");
    if (prompt == nullptr || !prompt->is_string())
      throw bad_request("give \"prompt\", a string, or \"messages\"", "prompt");
    tokens =
        with_field("prompt", [&] { return model_.tokenizer.encode(prompt->get<std::string>()); });
  }
  fields.refuse_others();
  return tokens;
}

std::string RequestParser::detokenize(std::string_view body) const {
  RequestFields fields(body);
  check_model(fields);
  const Json* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array())
    throw bad_request("give \"tokens\", a list of token ids", "tokens");
  const std::vector<int32_t> ids =
      tokens->empty() ? std::vector<int32_t>{} : token_ids(*tokens, "tokens");
  fields.refuse_others();
  return model_.tokenizer.decode(ids);
}

}  // namespace tlt::serve
