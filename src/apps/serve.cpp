// tlt serve: an HTTP server with the protocol of OpenAI's API (docs/serving.md), and with --train of
// the Tinker API (docs/tinker.md).
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/commands.h"
#include "base/check.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cli/find_model.h"
#include "cli/generation_flags.h"
#include "cli/recipe.h"
#include "serve/server.h"
#include "tinker/tinker_api.h"

namespace tlt::apps {
namespace {

constexpr int64_t kMaxKeyBytes = 4096;
constexpr size_t kMinKeyBytes = 16;

struct ServeFlags {
  cli::ModelFlags model;
  cli::SpeculationFlags speculation{"auto"};
  serve::ServerOptions server;
  std::string api_key_file, recipe;
  tinker::TinkerOptions training;

  void add_to(CLI::App& flags) {
    model.add_to(flags, /*model_is_required=*/false);
    flags.add_option("--train", recipe,
                     "Recipe of the model to serve and to train with the Tinker API "
                     "(docs/tinker.md), in place of --model.");
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

  // The options of the recipe that concern the model, its training and the folder.
  void read_recipe() {
    TLT_CHECK_INPUT(recipe.empty() != model.model.empty(),
                    "give --model DIR, or --train RECIPE.toml, whose model.path is served");
    if (recipe.empty()) return;
    run::RunOptions options = cli::RecipeWords{.recipe = recipe, .overrides = {}}.read();
    options.model.check();
    options.actor.check();
    TLT_CHECK_INPUT(options.model.random_seed < 0 && options.model.lora_adapter_path.empty(),
                    recipe,
                    ": model.random_seed and model.lora_adapter_path are not for tlt serve, whose "
                    "clients create what is trained; leave them out");
    TLT_CHECK_INPUT(!options.actor.optim.is_muon(), recipe,
                    ": actor.optim.optimizer is Muon, and the steps of the Tinker API are AdamW's; "
                    "leave it out");
    TLT_CHECK_INPUT(model.adapter.empty(),
                    "--adapter and --train exclude each other: clients create adapters");
    model.model = cli::find_model(options.model.path);
    if (model.dtype == "auto") model.dtype = options.model.dtype;
    if (model.threads == 0) model.threads = options.trainer.threads;
    if (model.device == "cpu") model.device = options.trainer.device;
    training.save_folder = options.trainer.folder() + "/tinker";
    training.lora_alpha = static_cast<double>(options.model.lora_alpha);
    training.seed = static_cast<uint64_t>(options.trainer.seed);
    training.trainer = {.max_tokens = options.actor.max_tokens,
                        .recompute = options.actor.recompute};
  }

  serve::Server::MakeExtension make_extension(model::PolicyModel& policy) {
    if (recipe.empty()) return {};
    training.model_name = server.model_name;
    training.model_folder = model.model;
    training.max_body_bytes = server.http.max_body_bytes;
    training.max_connections = server.http.max_connections;
    return [this, &policy](serve::EngineLoop& loop) {
      return std::make_unique<tinker::TinkerApi>(training, policy, loop);
    };
  }

  void check() {
    read_recipe();
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
                       flags.speculation.make(*policy, options.loop.engine),
                       flags.make_extension(*policy));
  log_info("http://{}:{}/v1 has the model {}", options.http.host, server.port(),
           options.model_name);
  if (!flags.recipe.empty())
    log_info("http://{}:{} has the Tinker API; weights are saved in {}", options.http.host,
             server.port(), flags.training.save_folder);
  server.run([] { return interrupted(); });
  return 0;
}

}  // namespace tlt::apps
