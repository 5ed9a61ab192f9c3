// Api: the answers of the server, without HTTP: bodies in, bodies out.
//
// Owns       the description of the model, ids of answers.
// Borrows    the engine loop, the metrics.
// Not here   sockets, keys, limits of a connection (http_server.h).
// Threading  any thread; a call waits until the engine has the tokens.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "chat_template/tool_calls.h"
#include "serve/engine_loop.h"
#include "serve/generation_request.h"
#include "serve/route.h"
#include "serve/server_metrics.h"

namespace tlt::serve {

class Api {
 public:
  struct Options {
    ServedModel model;
    std::vector<int32_t> eos_tokens;
    chat_template::ToolCallFormat tool_call_format = chat_template::ToolCallFormat::kHermes;
  };

  Api(Options options, EngineLoop& loop, ServerMetrics& metrics);

  // /v1/completions and /v1/chat/completions. Errors are ApiError or InputError. When the client is
  // gone the responses are cancelled, and what is returned does not matter.
  Reply completion(std::string_view body, bool is_chat, const Client& client);
  Reply models() const;
  Reply tokenize(std::string_view body) const;
  Reply detokenize(std::string_view body) const;
  // {"model_path": DIR}: a model folder or a run folder.
  Reply update_weights(std::string_view body);
  Reply health() const;
  Reply metrics() const;

  // The addresses of all of these. REQUIRES: this outlives them.
  std::vector<Route> routes();

 private:
  std::string next_id(bool is_chat);

  const Options options_;
  const RequestParser parser_;
  EngineLoop& loop_;
  ServerMetrics& metrics_;
  const std::string id_prefix_;  // random: ids of another start differ
  const int64_t created_;        // seconds since 1970
  std::atomic<uint64_t> requests_ = 0;
};

}  // namespace tlt::serve
