// RunningServer: a serve::Server of the demo's model in this process, on a free port of loopback.
//
//   RunningServer server;
//   const nlohmann::json answer = server.post("/v1/completions", {{"prompt", "4,6,8:"}});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/files.h"
#include "model/hf_folder.h"
#include "rollout/make_speculation.h"
#include "serve/server.h"
#include "tests/support/program.h"

namespace tlt::tests {

// A copy of the demo's model with a chat template, which writes the contents after each other and
// refuses the role "refused".
inline std::string served_model(const TestFolder& folder) {
  const std::string copy = folder.path() + "/model";
  std::filesystem::copy(std::string(TLT_SOURCE_DIR) + "/models/demo", copy,
                        std::filesystem::copy_options::recursive);
  write_file_atomic(copy + "/chat_template.jinja",
                    "{% for m in messages %}{% if m.role == 'refused' %}{{ raise_exception('no') "
                    "}}{% endif %}{{ m.content }}{% endfor %}{% if tools %},{% endif %}");
  return copy;
}

class RunningServer {
 public:
  using Json = nlohmann::json;

  // Makes an extension of the server with this model.
  using MakeExtension =
      std::function<std::unique_ptr<serve::Extension>(model::PolicyModel&, serve::EngineLoop&)>;

  explicit RunningServer(const std::function<void(serve::ServerOptions&)>& change = {},
                         const std::string& drafter = "", const MakeExtension& make_extension = {})
      : model_folder_(served_model(folder_)),
        policy_(model::load_policy(model_folder_, Device::cpu(1), at::kBFloat16)),
        tokenizer_(tokenizer::Tokenizer::load(model_folder_)) {
    policy_->set_tokens(tokenizer_.vocab_size());
    serve::ServerOptions options;
    options.http.port = 0;
    options.model_folder = model_folder_;
    options.model_name = "demo";
    options.loop.engine.kv_memory_bytes = 16 << 20;
    if (change) change(options);
    std::unique_ptr<rollout::Speculation> speculation;
    if (!drafter.empty()) {
      speculation::SpeculationOptions wanted;
      wanted.drafters = {drafter};
      rollout::SpeculationSetup setup;
      setup.strategy = drafter::parse_strategy("6_1_7");
      speculation =
          rollout::make_speculation(wanted, *policy_, options.loop.engine, std::move(setup));
    }
    serve::Server::MakeExtension make;
    if (make_extension)
      make = [&](serve::EngineLoop& loop) { return make_extension(*policy_, loop); };
    server_ = std::make_unique<serve::Server>(options, *policy_, tokenizer_, std::move(speculation),
                                              make);
    thread_ = std::thread([this] { server_->run([this] { return stops_.load(); }); });
  }
  ~RunningServer() { stop(); }

  // Ends the server as SIGTERM does. Every page must be free then.
  void stop() {
    if (!thread_.joinable()) return;
    begin_stop();
    thread_.join();
    EXPECT_NO_THROW(server_->check_idle_invariants());
  }
  void begin_stop() { stops_ = true; }

  int port() const { return server_->port(); }
  const std::string& model_folder() const { return model_folder_; }
  const tokenizer::Tokenizer& tokenizer() const { return tokenizer_; }
  serve::LoopStats stats() const { return server_->stats(); }

  httplib::Client client() const {
    httplib::Client client("127.0.0.1", port());
    client.set_read_timeout(120);
    return client;
  }

  httplib::Result send(const std::string& path, const std::string& body) const {
    return client().Post(path, body, "application/json");
  }
  // The answer; expects this status.
  Json post(const std::string& path, const Json& request, int status = 200) const {
    const httplib::Result result = send(path, request.dump());
    if (!result) {
      ADD_FAILURE() << path << ": no answer: " << httplib::to_string(result.error());
      return {};
    }
    EXPECT_EQ(result->status, status) << path << ": " << result->body;
    return Json::parse(result->body, nullptr, /*allow_exceptions=*/false);
  }
  Json get(const std::string& path) const {
    const httplib::Result result = client().Get(path);
    return result ? Json::parse(result->body, nullptr, /*allow_exceptions=*/false) : Json();
  }

  // Waits until no response is unfinished; false: some are after half a minute.
  bool waits_until_idle() const {
    for (int i = 0; i < 3000; ++i) {
      if (stats().unfinished == 0 && stats().engine.held_pages == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  TestFolder folder_;
  const std::string model_folder_;
  const std::unique_ptr<model::PolicyModel> policy_;
  const tokenizer::Tokenizer tokenizer_;
  std::atomic<bool> stops_ = false;
  std::unique_ptr<serve::Server> server_;
  std::thread thread_;
};

// A connection that sends any bytes.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False: the server has closed the connection.
  bool send(std::string_view bytes) const {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes);
  }
  // Reads until `text` has arrived, or the end; returns all that was read.
  std::string read_until(std::string_view text = "") const {
    std::string all;
    char bytes[4096];
    while (text.empty() || all.find(text) == std::string::npos) {
      const ssize_t count = ::recv(socket_, bytes, sizeof(bytes), 0);
      if (count <= 0) break;
      all.append(bytes, static_cast<size_t>(count));
    }
    return all;
  }

 private:
  const int socket_;
};

inline std::string http_request(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// The data of a stream's events; the last one must be [DONE].
inline std::vector<nlohmann::json> stream_events(const std::string& body) {
  std::vector<nlohmann::json> events;
  bool is_done = false;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = body.find("\n\n", begin);
    const std::string line = body.substr(begin, end - begin);
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    EXPECT_FALSE(is_done) << "an event after the last one";
    is_done = line == "data: [DONE]";
    if (!is_done) events.push_back(nlohmann::json::parse(line.substr(6)));
    begin = end == std::string::npos ? end : end + 2;
  }
  EXPECT_TRUE(is_done);
  return events;
}

}  // namespace tlt::tests
