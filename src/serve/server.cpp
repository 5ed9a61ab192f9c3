// SPDX-License-Identifier: Apache-2.0
#include "serve/server.h"

#include <atomic>
#include <exception>
#include <thread>

#include "base/check.h"
#include "base/start_thread.h"
#include "ops/batch.h"

namespace tlt::serve {
namespace {

using chat_template::ChatTemplate;
using chat_template::ToolCallFormat;

ToolCallFormat tool_call_format(const std::string& parser,
                                const std::optional<ChatTemplate>& chat_template) {
  if (const auto format = chat_template::parse_tool_call_format(parser)) return *format;
  return chat_template ? chat_template::find_tool_call_format(*chat_template)
                       : ToolCallFormat::kJson;
}

Api::Options api_options(const ServerOptions& options, const model::PolicyModel& policy,
                         const tokenizer::Tokenizer& tokenizer, const EngineLoop& loop) {
  const auto chat_template = ChatTemplate::find(options.model_folder);
  const model::ModelConfig& config = policy.config();
  return {.model = {.name = options.model_name,
                    .tokenizer = tokenizer,
                    .chat_template = chat_template,
                    .vocabulary = config.vocabulary,
                    .max_positions = config.max_positions,
                    .max_cache_tokens = loop.stats().engine.pages * ops::kPageSlots,
                    .max_choices = loop.max_responses()},
          .eos_tokens = config.eos_tokens,
          .tool_call_format = tool_call_format(options.tool_call_parser, chat_template)};
}

std::vector<Route> all_routes(Api& api, Extension* extension) {
  std::vector<Route> routes;
  if (extension != nullptr) routes = extension->routes();
  for (Route& route : api.routes()) routes.push_back(std::move(route));
  return routes;
}

}  // namespace

void ServerOptions::check() const {
  http.check();
  TLT_CHECK_INPUT(loop.max_waiting >= 0 && loop.max_waiting <= 1 << 20, "--max-waiting is ",
                  loop.max_waiting, "; give a number from 0 to ", 1 << 20);
  TLT_CHECK_INPUT(
      tool_call_parser == "auto" || chat_template::parse_tool_call_format(tool_call_parser),
      "--tool-call-parser is '", tool_call_parser, "'; use auto, hermes, llama3_json or json");
}

Server::Server(const ServerOptions& options, model::PolicyModel& policy,
               const tokenizer::Tokenizer& tokenizer,
               std::unique_ptr<rollout::Speculation> speculation,
               const MakeExtension& make_extension)
    : response_text_(tokenizer),
      loop_(policy, options.loop, &response_text_, std::move(speculation)),
      api_(api_options(options, policy, tokenizer, loop_), loop_, metrics_),
      extension_(make_extension ? make_extension(loop_) : nullptr),
      http_(options.http, all_routes(api_, extension_.get()), metrics_) {}

void Server::run(const std::function<bool()>& wants_stop) {
  std::atomic<bool> has_failed = false;
  std::exception_ptr fault;  // of the HTTP side
  std::thread http = start_thread([&] {
    try {
      http_.run([&] {
        const bool stops = has_failed || wants_stop();
        if (stops && extension_) extension_->stop_waiting();
        return stops;
      });
    } catch (...) {
      fault = std::current_exception();
    }
    if (extension_) extension_->close();
    loop_.close(/*cancels=*/true);
  });
  try {
    loop_.run();
  } catch (...) {
    has_failed = true;
    http.join();
    throw;
  }
  http.join();
  if (fault) std::rethrow_exception(fault);
}

}  // namespace tlt::serve
