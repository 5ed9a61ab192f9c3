// SPDX-License-Identifier: Apache-2.0
#include "serve/messages.h"

#include <string>

#include "base/json_limits.h"
#include "serve/api_error.h"

namespace tlt::serve {
namespace {

using Json = nlohmann::ordered_json;

bool has_text(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) && object.at(name).is_string();
}

std::string joined_parts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    if (!has_text(part, "type") || part.at("type") != "text" || !has_text(part, "text"))
      throw bad_request(
          "a content has a part that is not {\"type\": \"text\", \"text\": \"…\"}; this server "
          "takes "
          "text only",
          "messages");
    if (!text.empty()) text += "\n";
    text += part.at("text").get<std::string>();
  }
  return text;
}

void parse_arguments(Json& calls) {
  if (!calls.is_array()) throw bad_request("tool_calls is not a list", "messages");
  for (Json& call : calls) {
    if (!call.is_object() || !call.contains("function") || !has_text(call.at("function"), "name"))
      throw bad_request("a tool call has no function with a name", "messages");
    Json& function = call["function"];
    if (!has_text(function, "arguments")) continue;
    const Json arguments = parse_limited_json(function.at("arguments").get<std::string>());
    if (!arguments.is_object())
      throw bad_request("the arguments of a tool call are not a JSON object", "messages");
    function["arguments"] = arguments;
  }
}

}  // namespace

Json template_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty())
    throw bad_request("messages is not a list of messages; give at least one", "messages");
  Json list = messages;
  for (Json& message : list) {
    if (!has_text(message, "role"))
      throw bad_request("a message has no role; give {\"role\": \"user\", \"content\": \"…\"}",
                        "messages");
    const auto content = message.find("content");
    if (content != message.end() && content->is_array()) *content = joined_parts(*content);
    if (content != message.end() && !content->is_string() && !content->is_null())
      throw bad_request("a content is neither a string nor a list of parts", "messages");
    const auto calls = message.find("tool_calls");
    if (calls != message.end() && !calls->is_null()) parse_arguments(*calls);
  }
  return list;
}

void check_tools(const Json& tools) {
  if (!tools.is_array()) throw bad_request("tools is not a list", "tools");
  for (const Json& tool : tools)
    if (!has_text(tool, "type") || tool.at("type") != "function" || !tool.contains("function") ||
        !has_text(tool.at("function"), "name"))
      throw bad_request(
          "a tool is not {\"type\": \"function\", \"function\": {\"name\": \"…\", …}}", "tools");
}

}  // namespace tlt::serve
