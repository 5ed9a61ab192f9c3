// SPDX-License-Identifier: Apache-2.0
#include "serve/server.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "tests/support/mutator.h"
#include "tests/support/running_server.h"

namespace tlt::serve {
namespace {

using nlohmann::json;
using tests::RawClient;
using tests::RunningServer;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";

// A request with what shows every token: ids and logprobs.
json full_request(const std::string& prompt, int64_t seed, int64_t n = 1) {
  return {{"model", "demo"}, {"prompt", prompt},   {"seed", seed},
          {"n", n},          {"max_tokens", 48},   {"logprobs", 3},
          {"top_p", 0.95},   {"temperature", 1.2}, {"return_token_ids", true}};
}

// What must not depend on anything but the request.
json choices_of(const json& answer) { return answer.value("choices", json()); }

// The text, tokens and logprobs of a streamed completion's choices, put together.
json joined(const std::vector<json>& events, size_t choices) {
  json all = json::array();
  for (size_t i = 0; i < choices; ++i)
    all.push_back({{"text", ""}, {"token_ids", json::array()}, {"token_logprobs", json::array()}});
  for (const json& event : events)
    for (const json& choice : event["choices"]) {
      json& to = all[choice["index"].get<size_t>()];
      to["text"] = to["text"].get<std::string>() + choice["text"].get<std::string>();
      for (const json& token : choice["token_ids"]) to["token_ids"].push_back(token);
      for (const json& value : choice["logprobs"]["token_logprobs"])
        to["token_logprobs"].push_back(value);
      if (!choice["finish_reason"].is_null()) to["finish_reason"] = choice["finish_reason"];
    }
  return all;
}

json parts_of(const json& choices) {
  json all = json::array();
  for (const json& choice : choices)
    all.push_back({{"text", choice["text"]},
                   {"token_ids", choice["token_ids"]},
                   {"token_logprobs", choice["logprobs"]["token_logprobs"]},
                   {"finish_reason", choice["finish_reason"]}});
  return all;
}

std::string field_of(const json& answer, const char* name) {
  return answer.is_object() && answer.contains("error") ? answer["error"].value(name, json()).dump()
                                                        : "no error: " + answer.dump();
}

TEST(ServerTest, LoadSpeculationAndStreamingNeverChangeTokens) {
  std::vector<json> requests;
  for (int i = 0; i < 12; ++i)
    requests.push_back(full_request("4,6,8:" + std::to_string(20 + i), i, 1 + i % 3));
  std::vector<json> alone;
  {
    RunningServer server([](ServerOptions& options) { options.loop.engine.max_running = 1; });
    for (const json& request : requests)
      alone.push_back(choices_of(server.post(kCompletions, request)));
  }
  ASSERT_EQ(alone[2].size(), 3u);
  EXPECT_NE(alone[2][0]["token_ids"], alone[2][1]["token_ids"]);
  RunningServer server({}, "suffix");
  std::vector<std::thread> threads;
  for (size_t i = 0; i < requests.size(); ++i)
    threads.emplace_back([&, i] {
      json request = requests[i];
      if (i % 2 == 0) {
        EXPECT_EQ(choices_of(server.post(kCompletions, request)), alone[i]) << i;
      } else {
        request["stream"] = true;
        const auto result = server.send(kCompletions, request.dump());
        ASSERT_TRUE(result);
        EXPECT_EQ(joined(tests::stream_events(result->body), alone[i].size()), parts_of(alone[i]));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(server.stats().speculation.accepted_tokens, 0);
}

// The descriptor on which this process listens on a port.
int listening_socket(int port) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    int listens = 0;
    socklen_t listens_size = sizeof(listens);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        address.sin_family == AF_INET && ntohs(address.sin_port) == port &&
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size) == 0 && listens == 1)
      return fd;
  }
  return -1;
}

// accept() then returns an error that the library does not expect.
TEST(ServerTest, ListensAgainAfterAcceptHasFailed) {
  RunningServer server;
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(choices_of(server.post(kCompletions, full_request("4,6,8:20", 1))).empty());
    const int fd = listening_socket(server.port());
    ASSERT_GE(fd, 0);
    ASSERT_EQ(shutdown(fd, SHUT_RDWR), 0);
    for (int i = 0; i < 6000 && !server.client().Get("/health"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(choices_of(server.post(kCompletions, full_request("4,6,8:20", 1))).empty());
}

TEST(ServerTest, SeedOfAnAnswerGivesItAgain) {
  RunningServer server;
  json request = full_request("4,6,8:", 0);
  request.erase("seed");
  const json first = server.post(kCompletions, request), other = server.post(kCompletions, request);
  EXPECT_NE(first["seed"], other["seed"]);
  EXPECT_NE(first["choices"][0]["token_ids"], other["choices"][0]["token_ids"]);
  request["seed"] = first["seed"];
  EXPECT_EQ(server.post(kCompletions, request)["choices"], first["choices"]);
}

TEST(ServerTest, PromptsMayBeTokensAndLists) {
  RunningServer server;
  const std::vector<int32_t> tokens = server.tokenizer().encode("4,6,8:");
  const auto ids_of = [&](const json& prompt) {
    json request = full_request("", 3);
    request["prompt"] = prompt;
    const json answer = server.post(kCompletions, request);
    json ids = json::array();
    for (const json& choice : answer["choices"]) ids.push_back(choice["token_ids"]);
    return ids;
  };
  const json text = ids_of("4,6,8:");
  EXPECT_EQ(ids_of(tokens), text);
  const json list = ids_of(json::array({"4,6,8:", "4,6,8:", "5:"}));
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0], text[0]);
  EXPECT_NE(list[1], text[0]) << "each prompt of a list has its own uniforms";
  EXPECT_EQ(ids_of(json::array({tokens, tokens, {tokens[0]}}))[1], list[1]);
}

TEST(ServerTest, StopStringsEndTheTextBeforeThem) {
  RunningServer server;
  json request = full_request("4,6,8:", 1);
  const std::string whole = server.post(kCompletions, request)["choices"][0]["text"];
  ASSERT_GT(whole.size(), 12u);
  const std::string stop = whole.substr(6, 4);
  request["stop"] = {"no such text", stop};
  const json choice = server.post(kCompletions, request)["choices"][0];
  EXPECT_EQ(choice["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(choice["finish_reason"], "stop");
  request["stream"] = true;
  const auto result = server.send(kCompletions, request.dump());
  ASSERT_TRUE(result);
  EXPECT_EQ(joined(tests::stream_events(result->body), 1)[0]["text"], choice["text"]);
}

TEST(ServerTest, TopLogprobsHaveTheSampledTokensOwn) {
  RunningServer server;
  const json request = {{"messages", {{{"role", "user"}, {"content", "4,6,8:"}}}},
                        {"seed", 5},
                        {"temperature", 0},
                        {"max_tokens", 20},
                        {"logprobs", true},
                        {"top_logprobs", 4}};
  const json answer = server.post(kChat, request);
  const json& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), answer["usage"]["completion_tokens"]);
  for (const json& token : content) {
    ASSERT_EQ(token["top_logprobs"].size(), 4u);
    EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]) << "greedy: the most likely one";
    EXPECT_EQ(token["top_logprobs"][0]["logprob"], token["logprob"]) << "the same bits";
    for (size_t i = 1; i < 4; ++i)
      EXPECT_LE(token["top_logprobs"][i]["logprob"], token["top_logprobs"][i - 1]["logprob"]);
  }
}

TEST(ServerTest, PromptLogprobsAreThoseOfItsTokens) {
  RunningServer server;
  json request = full_request("4,6,8:", 5, /*n=*/2);
  request["temperature"] = 1;
  request["top_p"] = 1;
  const json plain = server.post(kCompletions, request)["choices"];
  // A response as a prompt: its logprobs were recorded when it was sampled.
  std::vector<int32_t> tokens = server.tokenizer().encode("4,6,8:");
  const size_t begin = tokens.size();
  for (const json& token : plain[0]["token_ids"]) tokens.push_back(token);
  request["prompt"] = json::array({tokens, {tokens[0]}});
  request["prompt_logprobs"] = 0;
  const json choices = server.post(kCompletions, request)["choices"];
  ASSERT_EQ(choices.size(), 4u);
  for (const size_t i : {0, 1}) {
    const json& list = choices[i]["prompt_logprobs"];
    ASSERT_EQ(list.size(), tokens.size());
    EXPECT_TRUE(list[0].is_null());
    for (size_t t = begin; t < tokens.size(); ++t) {
      const json& entry = list[t].at(std::to_string(tokens[t]));
      EXPECT_EQ(entry["logprob"], plain[0]["logprobs"]["token_logprobs"][t - begin]);
      EXPECT_EQ(entry["decoded_token"], plain[0]["logprobs"]["tokens"][t - begin]);
    }
    EXPECT_EQ(choices[2 + i]["prompt_logprobs"], json::array({nullptr}));
  }
  EXPECT_FALSE(plain[0].contains("prompt_logprobs"));
}

TEST(ServerTest, ChatStreamsADeltaWithRoleThenContentThenUsage) {
  RunningServer server;
  json request = {
      {"messages", {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "4,6:"}}}}}}},
      {"seed", 5},
      {"max_tokens", 20}};
  const json whole = server.post(kChat, request);
  EXPECT_EQ(whole["object"], "chat.completion");
  EXPECT_EQ(whole["choices"][0]["message"]["role"], "assistant");
  request.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  const auto result = server.send(kChat, request.dump());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream");
  const std::vector<json> events = tests::stream_events(result->body);
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events.back()["usage"], whole["usage"]);
  std::string text;
  for (const json& event : events)
    for (const json& choice : event["choices"]) text += choice["delta"].value("content", "");
  EXPECT_EQ(text, whole["choices"][0]["message"]["content"]);
}

TEST(ServerTest, ErrorsHaveTheFieldsOfOpenAi) {
  RunningServer server([](ServerOptions& options) { options.loop.max_waiting = 8; });
  const auto refused = [&](const char* path, const json& change, int status) {
    json request = {{"prompt", "4:"}, {"max_tokens", 2}};
    if (std::string(path) == kChat)
      request = {{"messages", {{{"role", "user"}, {"content", "4:"}}}}, {"max_tokens", 2}};
    request.update(change);
    const json answer = server.post(path, request, status);
    EXPECT_EQ(field_of(answer, "message").find('\n'), std::string::npos);
    return field_of(answer, "param");
  };
  EXPECT_EQ(refused(kCompletions, {{"n", 0}}, 400), "\"n\"");
  EXPECT_EQ(refused(kCompletions, {{"n", 1000}}, 400), "\"n\"");
  EXPECT_EQ(refused(kCompletions, {{"max_tokens", "2"}}, 400), "\"max_tokens\"");
  EXPECT_EQ(refused(kCompletions, {{"prompt", {1, 117'000}}}, 400), "\"prompt\"");
  EXPECT_EQ(refused(kCompletions, {{"prompt", std::string(5000, '4')}}, 400), "\"prompt\"");
  EXPECT_EQ(refused(kCompletions, {{"temprature", 1}}, 400), "\"temprature\"");
  EXPECT_EQ(refused(kCompletions, {{"echo", true}}, 400), "\"echo\"");
  EXPECT_EQ(refused(kCompletions, {{"seed", -1}}, 400), "\"seed\"");
  refused(kCompletions, {{"temperature", -1}}, 400);
  EXPECT_EQ(refused(kChat, {{"messages", {{{"role", "refused"}, {"content", ""}}}}}, 400),
            "\"messages\"");
  EXPECT_EQ(refused(kChat, {{"tool_choice", "required"}}, 400), "\"tool_choice\"");
  EXPECT_EQ(refused(kChat, {{"top_logprobs", 2}}, 400), "\"top_logprobs\"");
  EXPECT_EQ(
      field_of(server.post(kCompletions, {{"prompt", "4:"}, {"model", "gpt-4"}}, 404), "code"),
      "\"model_not_found\"");
  EXPECT_EQ(field_of(server.post("/v1/embeddings", {{"input", "x"}}, 404), "code"),
            "\"not_found\"");
  EXPECT_EQ(field_of(server.get(kCompletions), "code"), "\"not_found\"");
  EXPECT_EQ(server.send(kCompletions, "{\"prompt\": \"4:\"")->status, 400);
  EXPECT_EQ(server.send(kCompletions, "{\"prompt\": \"\xFF\"}")->status, 400);
  EXPECT_EQ(server.client().Post(kCompletions, "{}", "text/plain")->status, 415);
}

TEST(ServerTest, PromptLogprobsHaveNoTopOnesAndAreNotStreamed) {
  RunningServer server;
  json request = full_request("4,6,8:", 5);
  request["prompt_logprobs"] = 1;
  EXPECT_EQ(field_of(server.post(kCompletions, request, 400), "message"),
            "\"prompt_logprobs is 1, and only 0 is supported: the logprobs of the prompt's own "
            "tokens\"");
  request["prompt_logprobs"] = 0;
  request["stream"] = true;
  EXPECT_EQ(field_of(server.post(kCompletions, request, 400), "param"), "\"prompt_logprobs\"");
  EXPECT_EQ(
      server.post(kChat,
                  {{"messages", {{{"role", "user"}, {"content", "4"}}}}, {"prompt_logprobs", 0}},
                  400)["error"]["param"],
      "prompt_logprobs");
}

// Almost valid requests: each gets an answer, no page is lost, and the server stays the same.
TEST(ServerTest, MutatedBodiesAreAnsweredOrRefused) {
  RunningServer server([](ServerOptions& options) { options.loop.max_waiting = 8; });
  json request = full_request("4,6,8:", 3, 2);
  request.update({{"stop", {"a", "b"}}, {"max_tokens", 3}, {"min_p", 0.1}, {"top_k", 5}});
  const json chat = {{"messages",
                      {{{"role", "system"}, {"content", "4"}},
                       {{"role", "assistant"},
                        {"content", nullptr},
                        {"tool_calls",
                         {{{"id", "c"},
                           {"type", "function"},
                           {"function", {{"name", "f"}, {"arguments", "{\"x\": 1}"}}}}}}}}},
                     {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}},
                     {"tool_choice", "auto"},
                     {"logprobs", true},
                     {"max_completion_tokens", 3},
                     {"stream", true}};
  const std::string texts[] = {request.dump(), chat.dump()};
  const json before = server.post(kCompletions, request);
  tests::Mutator mutator(/*seed=*/1, {"prompt", "messages", "max_tokens", "n", "stop", "tools",
                                      "seed", "logprobs", "stream", "user", "role", "content"});
  std::map<int, int> statuses;
  for (int i = 0; i < 400; ++i) {
    const size_t kind = mutator.below(2);
    std::string body = mutator.one_in(3) ? mutator.bytes(texts[kind], texts[1 - kind])
                                         : mutator.json(texts[kind], texts[1 - kind]);
    const auto result = server.send(kind == 0 ? kCompletions : kChat, body);
    ASSERT_TRUE(result) << i << ": " << httplib::to_string(result.error()) << "\n" << body;
    ++statuses[result->status];
    if (result->status != 200) {
      const json answer = json::parse(result->body, nullptr, /*allow_exceptions=*/false);
      ASSERT_EQ(field_of(answer, "type"), "\"invalid_request_error\"") << result->body;
    }
  }
  for (const auto& [status, count] : statuses)
    EXPECT_TRUE(status == 200 || status == 400 || status == 404) << status << ": " << count;
  EXPECT_GT(statuses[200], 20);
  EXPECT_GT(statuses[400], 20);
  EXPECT_TRUE(server.waits_until_idle());
  EXPECT_EQ(server.post(kCompletions, request)["choices"], before["choices"]);
}

// Clients that leave at any moment: while the request waits, before and after the first token.
TEST(ServerTest, DisconnectsLeakNoPages) {
  RunningServer server([](ServerOptions& options) {
    options.loop.engine.max_running = 4;
    options.loop.engine.max_batch_tokens = 64;
  });
  for (int i = 0; i < 100; ++i) {
    json request = full_request("4,6,8:", i, 1 + i % 3);
    request.update({{"max_tokens", 1900}, {"ignore_eos", true}, {"stream", i % 2 == 0}});
    const RawClient client(server.port());
    ASSERT_TRUE(client.send(tests::http_request(kCompletions, request.dump())));
    if (i % 4 == 0) {
      EXPECT_NE(client.read_until("data: ").find("200 OK"), std::string::npos);
    }
    if (i % 10 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(server.waits_until_idle()) << server.stats().unfinished << " unfinished";
  EXPECT_EQ(server.stats().engine.held_pages, 0);
  server.post(kCompletions, full_request("4:", 1));
}

// Bytes of a next request that the server does not read must not hide that the client is gone.
TEST(ServerTest, DisconnectAfterFurtherBytesEndsTheResponses) {
  RunningServer server;
  json request = full_request("4,6,8:", 1, 8);
  request.update({{"max_tokens", 1900}, {"ignore_eos", true}});
  {
    const RawClient client(server.port());
    ASSERT_TRUE(client.send(tests::http_request(kCompletions, request.dump()) + "GET /health"));
    while (server.stats().engine.running == 0) std::this_thread::yield();
  }
  EXPECT_TRUE(server.waits_until_idle());
  EXPECT_LT(server.stats().engine.tokens, 8 * 1900);
}

int64_t cached_tokens(const json& answer) {
  return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
}

json chat_request(const json& messages, int64_t seed) {
  return {{"messages", messages}, {"seed", seed},
          {"max_tokens", 40},     {"logprobs", true},
          {"top_logprobs", 2},    {"ignore_eos", true},
          {"temperature", 0.8},   {"return_token_ids", true}};
}

// Requests with a common system prompt, and the turns of a conversation, with the answers that a
// server without the cache gives.
TEST(ServerTest, PrefixCacheChangesNoAnswer) {
  for (const char* drafter : {"", "suffix"}) {
    RunningServer server({}, drafter);
    RunningServer plain([](ServerOptions& options) { options.loop.engine.prefix_cache = false; });
    const std::string system = "3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35:";
    const auto system_tokens = std::ssize(server.tokenizer().encode(system));
    ASSERT_GT(system_tokens, 32);
    const auto answered = [&](const json& request) {
      const json answer = server.post(kChat, request), want = plain.post(kChat, request);
      EXPECT_EQ(choices_of(answer), choices_of(want)) << drafter;
      EXPECT_EQ(cached_tokens(want), 0);
      return answer;
    };
    for (int i = 0; i < 4; ++i) {
      const json answer =
          answered(chat_request({{{"role", "system"}, {"content", system}},
                                 {{"role", "user"}, {"content", std::to_string(20 + i) + ","}}},
                                i));
      EXPECT_EQ(cached_tokens(answer), i == 0 ? 0 : system_tokens / 16 * 16);
    }
    json messages = {{{"role", "user"}, {"content", "4,6,8:20,"}}};
    for (int turn = 0; turn < 3; ++turn) {
      const json answer = answered(chat_request(messages, turn));
      const int64_t prompt = answer["usage"]["prompt_tokens"];
      EXPECT_LE(cached_tokens(answer), prompt - 1);
      if (turn > 0) {
        EXPECT_GT(cached_tokens(answer), 16) << "of the turns before";
      }
      messages.push_back(answer["choices"][0]["message"]);
      messages.push_back({{"role", "user"}, {"content", ",7,"}});
    }
    const std::string metrics = server.client().Get("/metrics")->body;
    EXPECT_NE(metrics.find("tlt_prefix_cache_hits_total " +
                           std::to_string(server.stats().engine.prefix_cache.hits) + "\n"),
              std::string::npos);
    EXPECT_GE(server.stats().engine.prefix_cache.hits, 3 * (system_tokens / 16 * 16) + 32);
    EXPECT_GT(server.stats().engine.prefix_cache.queries, server.stats().engine.prefix_cache.hits);
    EXPECT_GT(server.stats().engine.cached_pages, 0);
    EXPECT_EQ(server.stats().engine.held_pages, 0);
    EXPECT_EQ(plain.stats().engine.prefix_cache.queries, 0);
  }
}

TEST(ServerTest, StreamedUsageHasCachedTokens) {
  RunningServer server;
  json request = full_request("3,5,7,9,11,13,15,17,19,21:", 1, 2);
  request["prompt"] = {request["prompt"], request["prompt"]};
  EXPECT_EQ(cached_tokens(server.post(kCompletions, request)), 0);
  request.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  const auto result = server.send(kCompletions, request.dump());
  ASSERT_TRUE(result);
  const json last = tests::stream_events(result->body).back();
  EXPECT_EQ(cached_tokens(last), 2 * 16) << "of each prompt once";
}

// Many prompts in little memory: cached pages go, and every request gets its answer.
TEST(ServerTest, PrefixCacheGivesItsPagesToRequests) {
  RunningServer server([](ServerOptions& options) {
    options.loop.engine.kv_memory_bytes = 1 << 20;
    options.loop.engine.max_running = 8;
  });
  RunningServer plain([](ServerOptions& options) { options.loop.engine.prefix_cache = false; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 24; ++i)
    threads.emplace_back([&, i] {
      const json request =
          full_request("3,5,7,9,11,13," + std::to_string(i % 5) + ",15,17,19,21:", i);
      EXPECT_EQ(choices_of(server.post(kCompletions, request)),
                choices_of(plain.post(kCompletions, request)))
          << i;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(server.waits_until_idle());
  EXPECT_GT(server.stats().engine.cached_pages, 0);
}

TEST(ServerTest, FullQueueAnswers429) {
  RunningServer server([](ServerOptions& options) {
    options.loop.engine.max_running = 2;
    options.loop.max_waiting = 1;
  });
  json request = full_request("4,6,8:", 1, 3);
  request.update({{"max_tokens", 1900}, {"ignore_eos", true}, {"stream", true}});
  const RawClient busy(server.port());
  ASSERT_TRUE(busy.send(tests::http_request(kCompletions, request.dump())));
  busy.read_until("data: ");
  const auto refused = server.send(kCompletions, full_request("4:", 1).dump());
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_TRUE(refused->has_header("Retry-After"));
  EXPECT_EQ(field_of(json::parse(refused->body), "code"), "\"rate_limit_exceeded\"");
  json scored = full_request("4,6:", 1);
  scored["prompt_logprobs"] = 0;
  EXPECT_EQ(server.send(kCompletions, scored.dump())->status, 429) << "before it is scored";
}

TEST(ServerTest, KeyIsRequiredButForHealth) {
  RunningServer server([](ServerOptions& options) { options.http.api_key = "0123456789abcdef"; });
  auto client = server.client();
  EXPECT_EQ(client.Get("/health")->status, 200);
  EXPECT_EQ(client.Get("/v1/models")->status, 401);
  EXPECT_EQ(client.Get("/metrics")->status, 401);
  client.set_bearer_token_auth("0123456789abcdeF");
  const auto refused = client.Get("/v1/models");
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(field_of(json::parse(refused->body), "code"), "\"invalid_api_key\"");
  client.set_bearer_token_auth("0123456789abcdef");
  EXPECT_EQ(client.Get("/v1/models")->status, 200);
}

TEST(ServerTest, WebPagesAreRefusedWithoutAKey) {
  RunningServer server;
  auto client = server.client();
  EXPECT_EQ(client.Get("/v1/models", {{"Host", "evil.example"}})->status, 403);
  EXPECT_EQ(client.Get("/v1/models", {{"Host", "127.0.0.1.evil.example"}})->status, 403);
  EXPECT_EQ(client.Get("/v1/models", {{"Host", "127.8.0.9:1"}})->status, 200);
  EXPECT_EQ(client.Get("/v1/models", {{"Host", "localhost:8000"}})->status, 200);
  EXPECT_EQ(client.Get("/v1/models", {{"Host", "[::1]:8000"}})->status, 200);
}

TEST(ServerTest, AddressOfOtherMachinesNeedsAKey) {
  HttpOptions options;
  options.host = "0.0.0.0";
  EXPECT_THROW(options.check(), InputError);
  options.api_key = "0123456789abcdef";
  EXPECT_NO_THROW(options.check());
}

TEST(ServerTest, PortOfAnotherServerIsRefused) {
  RunningServer server;
  EXPECT_THROW(RunningServer([&](ServerOptions& options) { options.http.port = server.port(); }),
               InputError);
}

TEST(ServerTest, BodiesAreLimitedWhateverTheirEncoding) {
  RunningServer server([](ServerOptions& options) { options.http.max_body_bytes = 1000; });
  const std::string large(5000, ' ');
  EXPECT_EQ(server.send(kCompletions, large)->status, 413);
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  const auto answer_to = [&](const std::string& rest) {
    const RawClient client(server.port());
    client.send(head + rest);
    return client.read_until();
  };
  EXPECT_TRUE(answer_to("Transfer-Encoding: chunked\r\n\r\n1388\r\n" + large + "\r\n0\r\n\r\n")
                  .starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(answer_to("Content-Length: 99999999999999\r\n\r\n").starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(answer_to("Content-Length: 5\r\nContent-Encoding: gzip\r\n\r\nabcde")
                  .starts_with("HTTP/1.1 415"));
  EXPECT_TRUE(answer_to("\r\n").starts_with("HTTP/1.1 400")) << "no body";
  EXPECT_TRUE(answer_to("Transfer-Encoding: chunked\r\n\r\nzz\r\n").starts_with("HTTP/1.1 400"));
  const RawClient stranger(server.port());
  stranger.send("\x16\x03\x01 not HTTP\r\n\r\n");
  EXPECT_TRUE(stranger.read_until().starts_with("HTTP/1.1 400"));
}

TEST(ServerTest, SlowRequestIsClosed) {
  RunningServer server([](ServerOptions& options) { options.http.limits.request_seconds = 0.5; });
  const RawClient client(server.port());
  const Stopwatch watch;
  ASSERT_TRUE(client.send("POST /v1/completions HTTP/1.1\r\n"));
  while (watch.seconds() < 20 && client.send("X-Slow: 1\r\n"))
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(watch.seconds(), 15) << "the server has closed the connection";
}

TEST(ServerTest, StopAnswersWhatIsInProgress) {
  RunningServer server([](ServerOptions& options) { options.loop.engine.max_running = 2; });
  json request = full_request("4,6,8:", 1, 4);
  request.update({{"max_tokens", 1900}, {"ignore_eos", true}, {"stream", true}});
  const RawClient busy(server.port());
  ASSERT_TRUE(busy.send(tests::http_request(kCompletions, request.dump())));
  busy.read_until("data: ");
  server.begin_stop();
  int status = 200;
  for (int i = 0; i < 100 && status == 200; ++i) {
    const auto health = server.client().Get("/health");
    status = health ? health->status : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(status, 503) << "no further requests, but an answer";
  EXPECT_NE(busy.read_until("[DONE]").find("[DONE]"), std::string::npos);
  server.stop();
}

TEST(ServerTest, UpdatedWeightsAreThoseOfTheFolder) {
  TestFolder folder;
  RunningServer server;
  const json request = full_request("3,5,7,9,11,13,15,17,19,21:", 2);
  const json before = server.post(kCompletions, request);
  EXPECT_EQ(before["weight_version"], 0);
  const std::string other = folder / "other";
  {
    const auto policy = model::load_policy(server.model_folder(), Device::cpu(1), at::kBFloat16);
    for (const model::Parameter& parameter : policy->parameters())
      parameter.write(policy->device(), parameter.read(policy->device()) * 0.9);
    model::save_policy(*policy, other, server.model_folder());
  }
  for (const std::string& path :
       {std::string("/no/such/folder"), std::string(5000, 'x'), folder.path(),
        std::string(TLT_SOURCE_DIR) + "/tests/golden/models/qwen2_tied"})
    server.post("/update_weights", {{"model_path", path}}, 400);
  EXPECT_EQ(server.post(kCompletions, request)["choices"], before["choices"]);

  // In progress when the update arrives: it ends with the weights it began with.
  json longer = request;
  longer.update({{"max_tokens", 300}, {"ignore_eos", true}});
  const json expected = server.post(kCompletions, longer)["choices"];
  std::atomic<bool> is_answered = false;
  std::thread client([&] {
    const json answer = server.post(kCompletions, longer);
    is_answered = true;
    EXPECT_EQ(answer["weight_version"], 0);
    EXPECT_EQ(answer["choices"], expected);
  });
  while (server.stats().engine.running == 0 && !is_answered) std::this_thread::yield();
  EXPECT_EQ(server.post("/update_weights", {{"model_path", other}})["weight_version"], 1);
  client.join();
  const json after = server.post(kCompletions, request);
  EXPECT_EQ(after["weight_version"], 1);
  EXPECT_NE(after["choices"], before["choices"]);
  EXPECT_EQ(cached_tokens(after), 0) << "no pages of the old weights";
  EXPECT_EQ(cached_tokens(server.post(kCompletions, request)), 16);
  RunningServer fresh;
  EXPECT_EQ(fresh.post("/update_weights", {{"model_path", other}})["weight_version"], 1);
  EXPECT_EQ(fresh.post(kCompletions, request)["choices"], after["choices"]);
}

TEST(ServerTest, TokenizeModelsAndMetricsAnswer) {
  RunningServer server;
  const json tokens = server.post("/tokenize", {{"prompt", "4,6,8:"}});
  EXPECT_EQ(tokens["count"], 6);
  EXPECT_EQ(server.post("/tokenize", {{"messages", {{{"role", "user"}, {"content", "4,6,8:"}}}}}),
            tokens);
  EXPECT_EQ(server.post("/detokenize", {{"tokens", tokens["tokens"]}})["prompt"], "4,6,8:");
  const json models = server.get("/v1/models");
  EXPECT_EQ(models["data"][0]["id"], "demo");
  json request = full_request("4,6,8:", 1);
  request["stream"] = true;
  server.send(kCompletions, request.dump());
  const std::string metrics = server.client().Get("/metrics")->body;
  for (const char* line :
       {"tlt_http_requests_total{path=\"/v1/completions\",status=\"200\"} 1\n",
        "tlt_prompt_tokens_total 6\n", "tlt_responses_unfinished 0\n", "tlt_kv_pages_held 0\n",
        "tlt_time_to_first_token_seconds_count 1\n", "# TYPE tlt_request_seconds histogram\n"})
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
}

}  // namespace
}  // namespace tlt::serve
