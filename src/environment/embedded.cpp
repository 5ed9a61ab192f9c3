// SPDX-License-Identifier: Apache-2.0
#include "environment/embedded.h"

#include <istream>
#include <map>
#include <ostream>

#include "base/check.h"
#include "base/json_limits.h"

namespace tlt::environment {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kCallsPerLine = 64;

std::vector<CalledTool> tools_of(const Json& call) {
  std::vector<CalledTool> tools;
  for (const Json& tool : call.value("tool_calls", Json::array()))
    tools.push_back(
        {tool.value("id", ""), tool.value("name", ""), tool.value("arguments", Json::object())});
  return tools;
}

Json json_of(const Observation& observation) {
  return {{"messages", observation.messages},
          {"reward", observation.reward},
          {"done", observation.is_done},
          {"extra", observation.extras}};
}

// The answer to a call other than close.
Json answer_to(const Json& call, Embedded& environment,
               std::map<int64_t, std::unique_ptr<Episode>>& episodes) {
  const auto id = call.at("episode").get<int64_t>();
  if (call.at("call") == "reset") {
    episodes[id] = environment.reset(call.at("row"));
    return {{"max_batch", kCallsPerLine}};
  }
  const Observation observation =
      episodes.at(id)->step(call.at("message").value("content", ""), tools_of(call));
  if (observation.is_done) episodes.erase(id);
  return json_of(observation);
}

// Answers a call, unless it is close.
void take(const Json& call, Embedded& environment,
          std::map<int64_t, std::unique_ptr<Episode>>& episodes, std::ostream& answers) {
  TLT_CHECK_INPUT(call.is_object() && call.contains("call") && call.contains("episode"),
                  "standard input: a line is no call like {\"id\": 1, \"call\": \"reset\", "
                  "\"episode\": 1, \"row\": {}}, nor a list of them (docs/environments.md)");
  if (call["call"] == "close") {
    if (call["episode"].is_number_integer()) episodes.erase(call["episode"].get<int64_t>());
    return;
  }
  Json answer = {{"id", call.value("id", Json())}};
  try {
    answer.update(answer_to(call, environment, episodes));
  } catch (const std::exception& error) {
    answer["error"] = error.what();
  }
  answers << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

}  // namespace

Json tool_message(const CalledTool& call, const std::string& content) {
  return {{"role", "tool"}, {"tool_call_id", call.id}, {"name", call.name}, {"content", content}};
}

std::unique_ptr<Embedded> make_embedded(const std::string& name) {
  if (name == "countdown") return make_countdown_game();
  if (name == "python") return make_python_tool();
  throw InputError("no environment is called '" + name + "'; give countdown or python");
}

// A batch gets a line for each answer: the first ones need not wait for the last one.
void serve(Embedded& environment, std::istream& calls, std::ostream& answers) {
  std::map<int64_t, std::unique_ptr<Episode>> episodes;
  for (std::string line; std::getline(calls, line);) {
    const Json call = parse_limited_json(line);
    if (!call.is_array())
      take(call, environment, episodes, answers);
    else
      for (const Json& one : call) take(one, environment, episodes, answers);
  }
}

}  // namespace tlt::environment
