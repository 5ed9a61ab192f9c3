// SPDX-License-Identifier: Apache-2.0
#include "serve/api.h"

#include <fmt/core.h>

#include <random>

#include "base/clock.h"
#include "cli/find_model.h"
#include "serve/answer_writer.h"
#include "serve/api_error.h"

namespace tlt::serve {
namespace {

using Json = nlohmann::ordered_json;

// Seconds between two looks whether the client is still connected.
constexpr double kPollSeconds = 0.1;

// A request in the engine. Cancels it when destroyed before the end.
class Generation {
 public:
  Generation(GenerationRequest request, EngineLoop& loop, ServerMetrics& metrics)
      : request_(std::move(request)),
        loop_(loop),
        metrics_(metrics),
        scored_(request_.wants_prompt_logprobs ? loop.score(request_.prompts) : ScoredPrompts{}),
        channel_(submit()) {}
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  ~Generation() {
    if (!writer_ || !writer_->is_finished()) loop_.cancel(channel_);
  }

  const GenerationRequest& request() const { return request_; }

  // Waits until the engine has accepted the request. False: the client is gone.
  bool open(AnswerContext context, const Client& client) {
    std::optional<int64_t> version;
    while (!(version = channel_->wait_open(kPollSeconds)))
      if (!client.is_connected()) return false;
    if (request_.wants_prompt_logprobs && *version != scored_.weight_version)
      throw unavailable("the weights were replaced during this request; send it again");
    context.prompt_logprobs = scored_.logprobs;
    for (const auto& prompt : request_.prompts) metrics_.add_prompt_tokens(std::ssize(prompt));
    writer_.emplace(request_, std::move(context), *version);
    return true;
  }

  // The whole answer; "" when the client is gone.
  std::string answer(const Client& client) {
    while (!writer_->is_finished()) {
      if (take().second == 0 && !client.is_connected()) return "";
    }
    metrics_.add_finished(watch_.seconds());
    return writer_->answer();
  }

  // An error after the first event becomes an event of its own, as in OpenAI's API.
  void stream(const Client& client) {
    try {
      if (!client.write(writer_->first_events())) return;
      while (!writer_->is_finished()) {
        const auto [events, deltas] = take();
        if (deltas > 0 && !has_first_token_) {
          has_first_token_ = true;
          metrics_.add_first_token(watch_.seconds());
        }
        if (!(events.empty() ? client.is_connected() : client.write(events))) return;
      }
      metrics_.add_finished(watch_.seconds());
      client.write(writer_->last_events());
    } catch (const std::exception& error) {
      client.write(sse_event(server_error(error.what()).body()));
    }
  }

 private:
  std::shared_ptr<ResponseChannel> submit() {
    EngineJob job{.groups = {}, .streams = request_.streams};
    for (size_t i = 0; i < request_.prompts.size(); ++i)
      job.groups.push_back({.tokens = request_.prompts[i],
                            .samples = request_.n,
                            .sampling = request_.sampling,
                            .seed = request_.seed,
                            .random_key = i,  // as the row number in tlt generate
                            .top_logprobs = request_.top_logprobs});
    return loop_.submit(std::move(job));
  }

  // The events of the tokens that have arrived, and the number of deltas.
  std::pair<std::string, size_t> take() {
    std::string events;
    const std::vector<TokenDelta> deltas = channel_->wait(kPollSeconds);
    for (const TokenDelta& delta : deltas) events += writer_->add(delta);
    return {std::move(events), deltas.size()};
  }

  const Stopwatch watch_;
  const GenerationRequest request_;
  EngineLoop& loop_;
  ServerMetrics& metrics_;
  const ScoredPrompts scored_;
  const std::shared_ptr<ResponseChannel> channel_;
  std::optional<AnswerWriter> writer_;
  bool has_first_token_ = false;
};

std::string random_prefix() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

Reply json_reply(const Json& json) {
  return {.body = json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace

Api::Api(Options options, EngineLoop& loop, ServerMetrics& metrics)
    : options_(std::move(options)),
      parser_(options_.model),
      loop_(loop),
      metrics_(metrics),
      id_prefix_(random_prefix()),
      created_(static_cast<int64_t>(wall_seconds())) {}

std::string Api::next_id(bool is_chat) {
  return fmt::format("{}-{}{:08x}", is_chat ? "chatcmpl" : "cmpl", id_prefix_, requests_++);
}

Reply Api::completion(std::string_view body, bool is_chat, const Client& client) {
  const auto generation = std::make_shared<Generation>(
      is_chat ? parser_.chat(body) : parser_.completion(body), loop_, metrics_);
  AnswerContext context{.id = next_id(is_chat),
                        .created = static_cast<int64_t>(wall_seconds()),
                        .model = options_.model.name,
                        .tokenizer = options_.model.tokenizer,
                        .eos_tokens = options_.eos_tokens,
                        .tool_call_format = options_.tool_call_format};
  if (!generation->open(std::move(context), client)) return {};
  if (!generation->request().streams) return {.body = generation->answer(client)};
  return {.body = {},
          .content_type = "text/event-stream",
          .stream = [generation](const Client& reader) { generation->stream(reader); }};
}

Reply Api::models() const {
  const Json model = {{"id", options_.model.name},
                      {"object", "model"},
                      {"created", created_},
                      {"owned_by", "tlt"},
                      {"max_model_len", options_.model.max_positions},
                      {"weight_version", loop_.stats().weight_version}};
  return json_reply({{"object", "list"}, {"data", Json::array({model})}});
}

Reply Api::tokenize(std::string_view body) const {
  const std::vector<int32_t> tokens = parser_.tokenize(body);
  return json_reply({{"count", tokens.size()},
                     {"max_model_len", options_.model.max_positions},
                     {"tokens", tokens}});
}

Reply Api::detokenize(std::string_view body) const {
  return json_reply({{"prompt", parser_.detokenize(body)}});
}

Reply Api::update_weights(std::string_view body) {
  RequestFields fields(body);
  const std::string path = fields.text("model_path");
  fields.refuse_others();
  if (path.empty())
    throw bad_request("model_path is missing; give the folder of the new weights", "model_path");
  const int64_t version = loop_.update_weights(cli::find_model(path));
  return json_reply({{"success", true}, {"weight_version", version}});
}

Reply Api::health() const {
  return json_reply({{"status", "ok"}, {"weight_version", loop_.stats().weight_version}});
}

std::vector<Route> Api::routes() {
  return {{"POST", "/v1/completions",
           [this](const HttpRequest& request, const Client& client) {
             return completion(request.body, /*is_chat=*/false, client);
           }},
          {"POST", "/v1/chat/completions",
           [this](const HttpRequest& request, const Client& client) {
             return completion(request.body, /*is_chat=*/true, client);
           }},
          {"GET", "/v1/models", [this](const HttpRequest&, const Client&) { return models(); }},
          {"GET", "/health", [this](const HttpRequest&, const Client&) { return health(); }},
          {"GET", "/metrics", [this](const HttpRequest&, const Client&) { return metrics(); }},
          {"POST", "/tokenize",
           [this](const HttpRequest& request, const Client&) { return tokenize(request.body); }},
          {"POST", "/detokenize",
           [this](const HttpRequest& request, const Client&) { return detokenize(request.body); }},
          {"POST", "/update_weights", [this](const HttpRequest& request, const Client&) {
             return update_weights(request.body);
           }}};
}

Reply Api::metrics() const {
  return {.body = metrics_.text(loop_.stats()), .content_type = "text/plain; version=0.0.4"};
}

}  // namespace tlt::serve
