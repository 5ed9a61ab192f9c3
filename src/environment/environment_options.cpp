// SPDX-License-Identifier: Apache-2.0
#include "environment/environment_options.h"

#include "base/check.h"
#include "chat_template/tool_calls.h"

namespace tlt::environment {
namespace {

constexpr int64_t kMaxProcesses = 256, kMaxTurns = 1'000;
constexpr double kMaxTimeoutSeconds = 86'400;

}  // namespace

void EnvironmentOptions::check() const {
  TLT_CHECK_INPUT(processes >= 1 && processes <= kMaxProcesses, "environment.processes is ",
                  processes, "; use 1 to ", kMaxProcesses);
  TLT_CHECK_INPUT(max_turns >= 1 && max_turns <= kMaxTurns, "environment.max_turns is ", max_turns,
                  "; use 1 to ", kMaxTurns);
  TLT_CHECK_INPUT(timeout_seconds > 0 && timeout_seconds <= kMaxTimeoutSeconds,
                  "environment.timeout_seconds is ", timeout_seconds,
                  "; use a number above 0 and up to ", kMaxTimeoutSeconds);
  TLT_CHECK_INPUT(
      tool_calls == "auto" || chat_template::parse_tool_call_format(tool_calls).has_value(),
      "environment.tool_calls is '", tool_calls, "'; use auto, hermes, llama3_json or json");
  TLT_CHECK_INPUT(command.empty() || !command.front().empty(),
                  "environment.command begins with an empty word; give a program and its "
                  "arguments, as [\"python3\", \"game.py\"]");
}

}  // namespace tlt::environment
