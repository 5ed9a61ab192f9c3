// EnvironmentOptions: the program that a model's turns are sent to (docs/environments.md).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"

namespace tlt::environment {

struct EnvironmentOptions {
  std::vector<std::string> command;
  int64_t processes = 1;
  int64_t max_turns = 8;
  double timeout_seconds = 60;
  std::string tool_calls = "auto";

  void visit(auto& v) {
    v(command, "command", Affects::kResults,
      "Program of a multi-turn environment and its arguments, which answers the model's turns in "
      "JSON lines (docs/environments.md), as [\"python3\", \"game.py\"] or [\"tlt\", "
      "\"environment\", \"countdown\"]; empty: one turn.");
    v(processes, "processes", Affects::kSpeed,
      "Programs per worker; each one has many episodes at a time.");
    v(max_turns, "max_turns", Affects::kResults, "Turns of the model after which an episode ends.");
    v(timeout_seconds, "timeout_seconds", Affects::kResults,
      "Time limit of one answer of the environment; a later one fails its episode.");
    v(tool_calls, "tool_calls", Affects::kResults,
      "Format of the model's tool calls: hermes, llama3_json, json, or auto (by the chat "
      "template).");
  }
  bool is_on() const { return !command.empty(); }

  // InputError: a value is out of range.
  void check() const;
};

}  // namespace tlt::environment
