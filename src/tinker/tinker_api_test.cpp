// SPDX-License-Identifier: Apache-2.0
#include "tinker/tinker_api.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "tests/support/mutator.h"
#include "tests/support/running_server.h"
#include "tinker/wire.h"

namespace tlt::tinker {
namespace {

using nlohmann::json;
using tests::RunningServer;

constexpr const char* kProto = "application/x-protobuf";

class TinkerServer {
 public:
  explicit TinkerServer(const Clock& clock = steady_clock())
      : server_({}, "", [&](model::PolicyModel& policy, serve::EngineLoop& loop) {
          TinkerOptions options;
          options.model_name = "demo";
          options.model_folder = std::string(TLT_SOURCE_DIR) + "/models/demo";
          options.save_folder = folder_ / "saved";
          options.trainer.max_tokens = 400;
          options.sessions.clock = &clock;
          auto api = std::make_unique<TinkerApi>(options, policy, loop);
          routes_ = api->routes();
          return api;
        }) {}

  RunningServer& server() { return server_; }
  // As post(), without HTTP in between.
  json call(const std::string& what, const json& body) const {
    const std::string path = "/api/v1/" + what, text = body.dump();
    const auto route =
        std::ranges::find_if(routes_, [&](const serve::Route& one) { return one.path == path; });
    return json::parse(route->answer({.path = path, .body = text}, {}).body);
  }
  json post(const std::string& what, const json& body, int status = 200) {
    return server_.post("/api/v1/" + what, body, status);
  }
  // The answer with the result of a request's future; a slow machine needs several requests for it.
  httplib::Result retrieve(const json& promise) {
    const std::string body = json{{"request_id", promise["request_id"]}}.dump();
    httplib::Result answer = server_.send("/api/v1/retrieve_future", body);
    for (int i = 0; i < 30 && answer && answer->body.find("try_again") != std::string::npos; ++i)
      answer = server_.send("/api/v1/retrieve_future", body);
    return answer;
  }
  json result_of(const json& promise) {
    const httplib::Result answer = retrieve(promise);
    if (!answer || answer->status != 200) {
      ADD_FAILURE() << "no result of " << promise;
      return json::object();
    }
    return json::parse(answer->body);
  }
  std::string begin_session() {
    return post("create_session",
                {{"tags", json::array()}, {"sdk_version", "0.38.0"}})["session_id"];
  }
  json create_model(const std::string& session, int64_t number = 0) {
    return result_of(post("create_model", {{"session_id", session},
                                           {"model_seq_id", number},
                                           {"base_model", "demo"},
                                           {"lora_config", {{"rank", 2}, {"seed", 1}}}}));
  }

 private:
  TestFolder folder_;
  std::vector<serve::Route> routes_;
  RunningServer server_;
};

json sample_body(const std::string& sampler, int64_t number) {
  return {{"sampling_session_id", sampler},
          {"seq_id", number},
          {"num_samples", 2},
          {"prompt", {{"chunks", {{{"type", "encoded_text"}, {"tokens", {17, 18, 12, 20}}}}}}},
          {"sampling_params", {{"max_tokens", 4}, {"temperature", 1.0}, {"stop", {1}}}},
          {"prompt_logprobs", true},
          {"type", "sample"}};
}

// A forward_backward request of two data.
std::string gradient_body(const std::string& model, int64_t number) {
  WireWriter request;
  request.bytes(1, model);
  request.varint(2, static_cast<uint64_t>(number));
  for (int i = 0; i < 2; ++i) {
    const std::vector<int32_t> tokens = {17, 18, 19};
    const std::vector<int64_t> targets = {18, 19, 20 + i};
    const std::vector<float> weights = {0, 1, 1};
    WireWriter text, chunk, datum;
    text.bytes(1, bytes_of(tokens));
    chunk.message(1, text);
    datum.message(1, chunk);
    const auto add = [&](const char* name, std::string_view values, uint64_t type) {
      WireWriter tensor, entry;
      tensor.bytes(1, values);
      tensor.varint(3, type);
      tensor.bytes(4, "\x03");
      entry.bytes(1, name);
      entry.message(2, tensor);
      datum.message(2, entry);
    };
    add("target_tokens", bytes_of(targets), 2);
    add("weights", bytes_of(weights), 1);
    request.message(3, datum);
  }
  request.bytes(4, "cross_entropy");
  return request.text();
}

TEST(TinkerApiTest, RequestsRunInTheOrderOfTheirSequenceIdsAndOnce) {
  TinkerServer tinker;
  const std::string session = tinker.begin_session();
  const std::string model = tinker.create_model(session)["model_id"];
  EXPECT_EQ(model, session + ":train:0");
  const json save = {{"model_id", model}, {"path", "a"}, {"seq_id", 3}};
  const json saved = tinker.post("save_weights", save);
  const json step =
      tinker.post("optim_step",
                  {{"model_id", model}, {"seq_id", 2}, {"adam_params", {{"learning_rate", 0.01}}}});
  const auto gradients =
      tinker.server().client().Post("/api/v1/forward_backward", gradient_body(model, 1), kProto);
  ASSERT_EQ(gradients->status, 200) << gradients->body;
  EXPECT_EQ(tinker.result_of(saved)["path"], "tinker://" + model + "/weights/a");
  EXPECT_GT(tinker.result_of(step)["metrics"]["grad_norm:mean"], 0.0)
      << "the gradient that arrived later came first";
  EXPECT_EQ(tinker.post("save_weights", save), saved) << "sent again, executed once";
  EXPECT_EQ(tinker.result_of(saved)["type"], "save_weights");
  tinker.post("optim_step", {{"model_id", model}, {"seq_id", 0}, {"adam_params", {{"beta1", 3}}}});
  EXPECT_EQ(tinker.result_of({{"request_id", model + ":4"}})["category"], "user");
  EXPECT_EQ(tinker.result_of(tinker.post(
                "save_weights", {{"model_id", model}, {"path", "b"}, {"seq_id", 5}}))["type"],
            "save_weights")
      << "a request that was refused takes its turn";
}

TEST(TinkerApiTest, OneModelAtATime) {
  TinkerServer tinker;
  const std::string first = tinker.begin_session(), second = tinker.begin_session();
  const std::string model = tinker.create_model(first)["model_id"];
  const json create = {{"session_id", second}, {"model_seq_id", 0}, {"base_model", "demo"}};
  const json refused = tinker.post("create_model", create, 400);
  EXPECT_NE(refused["error"]["message"].get<std::string>().find(model), std::string::npos);
  tinker.post("sessions/" + first + "/finish", {{"reason", {{"type", "success"}}}});
  tinker.post("get_info", {{"model_id", model}}, 404);
  tinker.post("session_heartbeat", {{"session_id", first}}, 410);
  EXPECT_EQ(tinker.result_of(tinker.post("create_model", create))["model_id"], second + ":train:0");
  const json info = tinker.post("get_info", {{"model_id", second + ":train:0"}});
  EXPECT_EQ(info["is_lora"], false) << "without a lora_config all weights are trained";
  EXPECT_EQ(
      tinker.result_of(tinker.post("unload_model", {{"model_id", second + ":train:0"}}))["type"],
      "unload_model");
  tinker.post("create_model", create);
}

TEST(TinkerApiTest, RequestsWithoutASequenceIdRunOnceInTheOrderOfArrival) {
  TinkerServer tinker;
  const std::string model = tinker.create_model(tinker.begin_session())["model_id"];
  // Steps that are refused in their turn, each with a sentence of its own.
  const auto step = [&](int rate) {
    return tinker.call("optim_step",
                       {{"model_id", model}, {"adam_params", {{"learning_rate", rate}}}});
  };
  constexpr int kThreads = 8, kEach = 400;
  std::vector<json> promises(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = t; i < kThreads * kEach; i += kThreads)
        promises[static_cast<size_t>(i)] = step(1000 + i);
    });
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> ids, expected;
  for (int i = 0; i < kThreads * kEach; ++i) {
    const json& promise = promises[static_cast<size_t>(i)];
    ids.insert(promise["request_id"].get<std::string>());
    expected.insert(model + ":" + std::to_string(i + 1));
    const json poll = {{"request_id", promise["request_id"]}};
    json result = tinker.call("retrieve_future", poll);
    while (result.contains("queue_state")) result = tinker.call("retrieve_future", poll);
    EXPECT_NE(result.dump().find(std::to_string(1000 + i)), std::string::npos)
        << "the result is that of another request: " << result;
  }
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(step(1)["request_id"], model + ":" + std::to_string(kThreads * kEach + 1));
  tinker.post("save_weights", {{"model_id", model}, {"path", "a"}, {"seq_id", 9999}});
  EXPECT_EQ(step(1)["request_id"], model + ":10000") << "after one that waits for others, too";
}

TEST(TinkerApiTest, WhatBelongsToASilentSessionIsDropped) {
  FakeClock clock;
  TinkerServer tinker(clock);
  const std::string silent = tinker.begin_session(), lively = tinker.begin_session();
  const std::string model = tinker.create_model(silent)["model_id"];
  const auto sampler_of = [&](const std::string& session) -> std::string {
    return tinker.post("create_sampling_session", {{"session_id", session},
                                                   {"sampling_session_seq_id", 0},
                                                   {"base_model", "demo"}})["sampling_session_id"];
  };
  const std::string first = sampler_of(silent), second = sampler_of(lively);
  const auto is_there = [&](const std::string& sampler) {
    return tinker.server().get("/api/v1/samplers/" + sampler).contains("sampler_id");
  };
  clock.advance(3601);
  tinker.post("session_heartbeat", {{"session_id", lively}});
  EXPECT_TRUE(is_there(first));
  tinker.begin_session();
  EXPECT_FALSE(is_there(first));
  EXPECT_TRUE(is_there(second));
  tinker.post("get_info", {{"model_id", model}}, 404);
  tinker.post("session_heartbeat", {{"session_id", silent}}, 410);
  EXPECT_EQ(tinker.create_model(lively)["model_id"], lively + ":train:0");
}

TEST(TinkerApiTest, DamagedRequestsGetAnAnswer) {
  TinkerServer tinker;
  const std::string session = tinker.begin_session();
  const std::string model = tinker.create_model(session)["model_id"];
  const std::string sampler =
      tinker.post("create_sampling_session", {{"session_id", session},
                                              {"sampling_session_seq_id", 0},
                                              {"base_model", "demo"}})["sampling_session_id"];
  const std::vector<std::pair<std::string, json>> whole = {
      {"asample", sample_body(sampler, 1)},
      {"optim_step", {{"model_id", model}, {"seq_id", 1}, {"adam_params", {{"beta1", 0.9}}}}},
      {"save_weights", {{"model_id", model}, {"path", "a"}, {"seq_id", 1}, {"overwrite", true}}},
      {"save_weights_for_sampler",
       {{"model_id", model}, {"seq_id", 2}, {"sampling_session_seq_id", 3}, {"kind", "snapshot"}}},
      {"load_weights",
       {{"model_id", model}, {"path", "tinker://a/weights/b"}, {"optimizer", true}, {"seq_id", 3}}},
      {"create_model",
       {{"session_id", session},
        {"model_seq_id", 1},
        {"base_model", "demo"},
        {"lora_config", {{"rank", 2}, {"seed", 1}, {"train_attn", false}}}}},
      {"create_sampling_session",
       {{"session_id", session},
        {"sampling_session_seq_id", 9},
        {"model_path", "tinker://a/sampler_weights/b"}}},
      {"weights_info", {{"tinker_path", "tinker://a/weights/b"}}},
      {"session_heartbeat", {{"session_id", session}}}};
  tests::Mutator mutator(/*seed=*/7, {"tinker://", "../", "seq_id", "null", "1e999", "\xff"});
  std::map<int, int> statuses;
  for (int i = 0; i < 500; ++i) {
    const auto& [what, body] = mutator.one_of(whole);
    const std::string text = body.dump(), other = mutator.one_of(whole).second.dump();
    const std::string damaged =
        mutator.one_in(4) ? mutator.bytes(text, other) : mutator.json(text, other);
    const auto answer = tinker.server().send("/api/v1/" + what, damaged);
    ASSERT_TRUE(answer) << what << " " << damaged;
    ++statuses[answer->status];
    EXPECT_LT(answer->status, 500) << what << " " << damaged << answer->body;
    if (answer->status >= 400) {
      EXPECT_FALSE(json::parse(answer->body)["error"]["message"].empty());
    }
  }
  const std::string gradients = gradient_body(model, 0);
  for (int i = 0; i < 300; ++i) {
    const auto answer = tinker.server().client().Post("/api/v1/forward_backward",
                                                      mutator.bytes(gradients, gradients), kProto);
    ASSERT_TRUE(answer);
    ++statuses[answer->status];
    EXPECT_LT(answer->status, 500) << answer->body;
  }
  EXPECT_GT(statuses[400], 100);
  EXPECT_GT(statuses[200], 20);
  // The server still works.
  const auto answer =
      tinker.server().send("/api/v1/asample", sample_body(sampler, 1'000'000).dump());
  ASSERT_EQ(answer->status, 200) << answer->body;
  const auto result = tinker.retrieve(json::parse(answer->body));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->get_header_value("Content-Type"), kProto) << result->body;
}

TEST(TinkerApiTest, WhatItDoesNotHaveIsOneSentence) {
  TinkerServer tinker;
  for (const char* what : {"create_custom_loss", "save_weights_external", "copy_weights"})
    EXPECT_NE(tinker.post(what, json::object(), 404)["error"]["message"].get<std::string>().find(
                  "docs/tinker.md"),
              std::string::npos);
  EXPECT_NE(tinker.server()
                .post("/update_weights", {{"model_path", "x"}}, 400)["error"]["message"]
                .get<std::string>()
                .find("--train"),
            std::string::npos);
  EXPECT_EQ(tinker.server().get("/api/v1/healthz")["status"], "ok");
  EXPECT_EQ(tinker.post("telemetry", {{"events", json::array()}})["status"], "accepted");
  const json models = tinker.server().get("/api/v1/get_server_capabilities")["supported_models"];
  EXPECT_EQ(models[0]["model_name"], "demo");
  EXPECT_EQ(
      tinker.server().client().Post("/api/v1/forward_backward", "{}", "application/json")->status,
      415);
}

}  // namespace
}  // namespace tlt::tinker
