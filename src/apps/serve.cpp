// tlt serve: an HTTP server with the protocol of OpenAI's API (docs/serving.md).
//
// SPDX-License-Identifier: Apache-2.0
#include "serve/server.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/commands.h"
#include "base/check.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cli/generation_flags.h"

namespace tlt::apps {
namespace {

constexpr int64_t kMaxKeyBytes = 4096;
constexpr size_t kMinKeyBytes = 16;

struct ServeFlags {
  cli::ModelFlags model;
  cli::SpeculationFlags speculation{"auto"};
  serve::ServerOptions server;
  std::string api_key_file;

  void add_to(CLI::App& flags) {
    model.add_to(flags);
    serve::HttpOptions& http = server.http;
    flags.add_option("--host", http.host,
                     "Address to listen on; one that is not loopback needs --api-key-file.");
    flags.add_option("--port", http.port, "Port to listen on; 0: a free one, which is logged.");
    flags.add_option("--api-key-file", api_key_file,
                     "File whose first line is the key that requests must send (Authorization: "
                     "Bearer KEY), at least 16 characters.");
    flags.add_option("--served-model-name", server.model_name,
                     "Name of the model in requests and answers; by default the model's folder.");
    flags.add_option("--tool-call-parser", server.tool_call_parser,
                     "Format of the model's tool calls: hermes (Qwen), llama3_json or json; auto: "
                     "that of its chat template.");
    flags.add_option("--max-running", server.loop.engine.max_running,
                     "Maximum number of responses decoded together.");
    flags.add_option("--max-waiting", server.loop.max_waiting,
                     "Responses that may wait for their turn; a request beyond them gets 429.");
    flags.add_option("--max-connections", http.max_connections,
                     "Connections served at the same time; further ones wait.");
    cli::add_size_flag(flags, "--max-body", http.max_body_bytes, "4MB",
                       "Largest body of a request.");
    flags.add_flag_callback(
        "--no-enable-prefix-caching", [this] { server.loop.engine.prefix_cache = false; },
        "Compute every prompt from its first token, also one that begins like an earlier one.");
    speculation.add_to(flags);
    cli::add_kv_memory_flag(flags, server.loop.engine);
  }

  void check() {
    cli::check_kv_memory(server.loop.engine);
    speculation.check();
    if (!api_key_file.empty()) server.http.api_key = read_key(api_key_file);
    rollout::EngineOptions& engine = server.loop.engine;
    TLT_CHECK_INPUT(engine.max_running >= 1 && engine.max_running <= 1 << 16, "--max-running is ",
                    engine.max_running, "; give a number from 1 to ", 1 << 16);
    engine.max_batch_tokens = std::max(engine.max_batch_tokens, engine.max_running);
    server.check();
  }

  static std::string read_key(const std::string& file) {
    std::string key = read_file(file, kMaxKeyBytes);
    key = key.substr(0, key.find_first_of("\r\n"));
    TLT_CHECK_INPUT(key.size() >= kMinKeyBytes, file, ": its first line has ", key.size(),
                    " characters; write a key of at least ", kMinKeyBytes,
                    " there, such as the output of openssl rand -hex 32");
    return key;
  }
};

}  // namespace

int run_serve(const cli::Arguments& arguments) {
  ServeFlags flags;
  CLI::App app("An HTTP server with the protocol of OpenAI's API.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  flags.check();
  install_interrupt_handler("\nstopping after the requests in progress\n");

  const auto policy = flags.model.load();
  const auto tokenizer = flags.model.load_tokenizer(*policy);
  TLT_CHECK_INPUT(tokenizer, flags.model.model,
                  " has no tokenizer.json; copy the model's tokenizer.json there");
  serve::ServerOptions& options = flags.server;
  options.model_folder = flags.model.model;
  if (options.model_name.empty()) options.model_name = flags.model.model;
  serve::Server server(options, *policy, *tokenizer,
                       flags.speculation.make(*policy, options.loop.engine));
  log_info("http://{}:{}/v1 has the model {}", options.http.host, server.port(),
           options.model_name);
  server.run([] { return interrupted(); });
  return 0;
}

}  // namespace tlt::apps
