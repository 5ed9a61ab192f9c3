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
#include <functional>
#include <string>
#include <string_view>

#include "chat_template/tool_calls.h"
#include "serve/engine_loop.h"
#include "serve/generation_request.h"
#include "serve/server_metrics.h"

namespace tlt::serve {

// The client of a request. `write` sends a part of a stream.
struct Client {
  std::function<bool()> is_connected;
  std::function<bool(std::string_view)> write;  // false: the client is gone
};

struct Reply {
  std::string body;
  std::string content_type = "application/json";
  // When set, writes the body piece by piece, until it is complete or the client is gone.
  std::function<void(const Client&)> stream = {};
};

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
