// Server: the engine loop on this thread, HTTP on others, from the start to the last answer.
//
// Owns       engine loop, API, an extension of it, metrics, HTTP server.
// Borrows    policy model, tokenizer.
// Threading  run(): the thread that drives the device; stop(): any.
//
//   Server server(options, *policy, *tokenizer, std::move(speculation));
//   log_info("listening on port {}", server.port());
//   server.run([] { return interrupted(); });
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "run/response_text.h"
#include "serve/api.h"
#include "serve/engine_loop.h"
#include "serve/http_server.h"

namespace tlt::serve {

struct ServerOptions {
  HttpOptions http;
  EngineLoop::Options loop;
  std::string model_folder;
  std::string model_name;                 // in requests and answers
  std::string tool_call_parser = "auto";  // or hermes, llama3_json, json

  // InputError names the flag and what is accepted.
  void check() const;
};

class Server {
 public:
  using MakeExtension = std::function<std::unique_ptr<Extension>(EngineLoop&)>;

  // InputError: the port cannot be used, or the chat template cannot be read. `make_extension`:
  // may be empty; the extension ends before the engine loop.
  Server(const ServerOptions& options, model::PolicyModel& policy,
         const tokenizer::Tokenizer& tokenizer, std::unique_ptr<rollout::Speculation> speculation,
         const MakeExtension& make_extension = {});

  int port() const { return http_.port(); }

  // Answers requests until wants_stop() is true and the requests in progress are answered. An error
  // of the engine is thrown, after every client has got an answer.
  void run(const std::function<bool()>& wants_stop);

  LoopStats stats() const { return loop_.stats(); }
  // Throws when a page of the KV cache is still held. REQUIRES: run() has returned.
  void check_idle_invariants() const { loop_.check_idle_invariants(); }

 private:
  const run::ResponseText response_text_;
  EngineLoop loop_;
  ServerMetrics metrics_;
  Api api_;
  const std::unique_ptr<Extension> extension_;  // or null
  HttpServer http_;
};

}  // namespace tlt::serve
