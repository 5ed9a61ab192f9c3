// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_writer.h"

#include <utility>

#include "base/check.h"

namespace tlt::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& items) {
  to.insert(to.end(), items.begin(), items.end());
}

}  // namespace

std::string sse_event(const std::string& data) { return "data: " + data + "\n\n"; }

AnswerWriter::AnswerWriter(const GenerationRequest& request, AnswerContext context,
                           int64_t weight_version)
    : request_(request),
      context_(std::move(context)),
      text_rule_(text_rule()),
      weight_version_(weight_version),
      unfinished_(request.choices()) {
  for (int64_t i = 0; i < request.choices(); ++i) choices_.emplace_back(text_rule_);
}

// The text that tool calls are found in has special tokens, because some formats use them.
TextRule AnswerWriter::text_rule() const {
  TextRule rule{
      .tokenizer = context_.tokenizer,
      .stop_tokens = {request_.sampling->stop_tokens.begin(), request_.sampling->stop_tokens.end()},
      .stop = request_.sampling->stop,
      .skips_special = request_.skips_special_tokens && !request_.has_tools};
  if (!request_.sampling->ignore_eos) append(rule.stop_tokens, context_.eos_tokens);
  return rule;
}

std::string AnswerWriter::add(const TokenDelta& delta) {
  Choice& choice = choices_.at(static_cast<size_t>(delta.choice));
  TLT_CHECK(!choice.finish, "tokens after the last ones of choice ", delta.choice);
  choice.text += choice.decoder.push(delta.tokens, delta.finish);
  append(choice.tokens, delta.tokens);
  append(choice.logprobs, delta.logprobs);
  append(choice.top_logprobs, delta.top_logprobs);
  choice.finish = delta.finish;
  choice.cached_tokens = delta.cached_tokens;
  if (delta.finish) --unfinished_;
  return request_.streams ? event_of(delta, choice) : "";
}

Json AnswerWriter::head(const char* object) const {
  return {{"id", context_.id},
          {"object", object},
          {"created", context_.created},
          {"model", context_.model},
          {"weight_version", weight_version_},
          {"seed", request_.seed}};
}

int64_t AnswerWriter::completion_tokens() const {
  int64_t sum = 0;
  for (const Choice& choice : choices_) sum += std::ssize(choice.tokens);
  return sum;
}

Json AnswerWriter::usage() const {
  int64_t prompt = 0, cached = 0;
  for (size_t i = 0; i < request_.prompts.size(); ++i) {
    prompt += std::ssize(request_.prompts[i]);
    cached += choices_[i * static_cast<size_t>(request_.n)].cached_tokens;  // one of its choices
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion_tokens()},
          {"total_tokens", prompt + completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

Json AnswerWriter::logprobs_of(const ScoredTokens& scored, int64_t& offset) const {
  if (!request_.wants_logprobs) return nullptr;
  return request_.is_chat ? chat_logprobs(context_.tokenizer, scored)
                          : completion_logprobs(context_.tokenizer, scored, offset);
}

chat_template::ParsedResponse AnswerWriter::parsed(const Choice& choice) const {
  if (!request_.has_tools) return {choice.text, {}};
  return chat_template::parse_tool_calls(context_.tool_call_format, choice.text);
}

std::string AnswerWriter::finish_reason(const Choice& choice, bool has_calls) const {
  const bool is_call = has_calls && choice.finish == rollout::FinishReason::kStop;
  return is_call ? "tool_calls" : rollout::to_string(*choice.finish);
}

Json AnswerWriter::tool_calls_of(int64_t index, const chat_template::ParsedResponse& parsed,
                                 bool is_stream) const {
  Json calls = Json::array();
  for (const chat_template::ToolCall& call : parsed.calls) {
    Json item = Json::object();
    if (is_stream) item["index"] = calls.size();
    item["id"] =
        "call_" + context_.id + "_" + std::to_string(index) + "_" + std::to_string(calls.size());
    item["type"] = "function";
    item["function"] = {{"name", call.name}, {"arguments", dump(call.arguments)}};
    calls.push_back(std::move(item));
  }
  return calls;
}

Json AnswerWriter::whole_choice(int64_t index) const {
  const Choice& choice = choices_[static_cast<size_t>(index)];
  const chat_template::ParsedResponse response = parsed(choice);
  Json json = {{"index", index}};
  if (request_.is_chat) {
    const bool has_no_text = response.content.empty() && !response.calls.empty();
    json["message"] = {{"role", "assistant"},
                       {"content", has_no_text ? Json() : Json(response.content)}};
    if (!response.calls.empty())
      json["message"]["tool_calls"] = tool_calls_of(index, response, /*is_stream=*/false);
  } else {
    json["text"] = choice.text;
  }
  int64_t offset = 0;
  json["logprobs"] = logprobs_of({choice.tokens, choice.logprobs, choice.top_logprobs}, offset);
  json["finish_reason"] = finish_reason(choice, !response.calls.empty());
  const auto prompt = static_cast<size_t>(index / request_.n);
  if (!context_.prompt_logprobs.empty())
    json["prompt_logprobs"] = prompt_logprobs(context_.tokenizer, request_.prompts[prompt],
                                              context_.prompt_logprobs[prompt]);
  if (request_.returns_token_ids) {
    if (!request_.is_chat) json["prompt_token_ids"] = request_.prompts[prompt];
    json["token_ids"] = choice.tokens;
  }
  return json;
}

std::string AnswerWriter::answer() const {
  TLT_CHECK(is_finished(), unfinished_, " responses are not finished");
  Json json = head(request_.is_chat ? "chat.completion" : "text_completion");
  json["choices"] = Json::array();
  for (int64_t i = 0; i < request_.choices(); ++i) json["choices"].push_back(whole_choice(i));
  if (request_.is_chat && request_.returns_token_ids)
    json["prompt_token_ids"] = request_.prompts.front();
  json["usage"] = usage();
  return dump(json);
}

// What a stream adds to a chat message; sets `finish` if the response is finished.
Json AnswerWriter::delta_of(int64_t index, Choice& choice, std::string& finish) {
  Json delta = Json::object();
  size_t end = choice.text.size();
  if (choice.finish) {
    const chat_template::ParsedResponse response = parsed(choice);
    end = response.content.size();
    if (!response.calls.empty())
      delta["tool_calls"] = tool_calls_of(index, response, /*is_stream=*/true);
    finish = finish_reason(choice, !response.calls.empty());
  } else if (request_.has_tools) {
    end = chat_template::content_bytes(context_.tool_call_format, choice.text);
  }
  if (end > choice.streamed_bytes)
    delta["content"] = choice.text.substr(choice.streamed_bytes, end - choice.streamed_bytes);
  choice.streamed_bytes = end;
  return delta;
}

std::string AnswerWriter::event_of(const TokenDelta& delta, Choice& choice) {
  Json json = {{"index", delta.choice}};
  std::string finish;
  Json added = delta_of(delta.choice, choice, finish);
  const bool has_more = request_.wants_logprobs || request_.returns_token_ids;
  if (added.empty() && finish.empty() && !has_more) return "";
  if (request_.is_chat)
    json["delta"] = std::move(added);
  else
    json["text"] = added.value("content", "");
  json["logprobs"] = logprobs_of({delta.tokens, delta.logprobs, delta.top_logprobs}, choice.offset);
  json["finish_reason"] = finish.empty() ? Json() : Json(finish);
  if (request_.returns_token_ids) json["token_ids"] = delta.tokens;
  Json event = head(request_.is_chat ? "chat.completion.chunk" : "text_completion");
  event["choices"] = Json::array({std::move(json)});
  return sse_event(dump(event));
}

std::string AnswerWriter::first_events() const {
  std::string events;
  for (int64_t i = 0; i < request_.choices() && request_.is_chat; ++i) {
    Json event = head("chat.completion.chunk");
    event["choices"] = Json::array({{{"index", i},
                                     {"delta", {{"role", "assistant"}, {"content", ""}}},
                                     {"logprobs", nullptr},
                                     {"finish_reason", nullptr}}});
    if (request_.returns_token_ids) event["prompt_token_ids"] = request_.prompts.front();
    events += sse_event(dump(event));
  }
  return events;
}

std::string AnswerWriter::last_events() const {
  std::string events;
  if (request_.includes_usage) {
    Json event = head(request_.is_chat ? "chat.completion.chunk" : "text_completion");
    event["choices"] = Json::array();
    event["usage"] = usage();
    events += sse_event(dump(event));
  }
  return events + sse_event("[DONE]");
}

}  // namespace tlt::serve
