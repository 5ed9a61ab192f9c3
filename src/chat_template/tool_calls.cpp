// SPDX-License-Identifier: Apache-2.0
#include "chat_template/tool_calls.h"

#include <algorithm>

#include "base/check.h"
#include "base/json_limits.h"

namespace tlt::chat_template {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCallBegin = "<tool_call>", kCallEnd = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kSpace = " \t\r\n";

// nullopt: not a call. Arguments that are a string are parsed: some models write JSON in JSON.
std::optional<ToolCall> to_call(const Json& json) {
  if (!json.is_object() || !json.contains("name") || !json.at("name").is_string())
    return std::nullopt;
  ToolCall call{json.at("name").get<std::string>(), Json::object()};
  for (const char* key : {"arguments", "parameters"})
    if (json.contains(key)) call.arguments = json.at(key);
  if (call.arguments.is_string())
    call.arguments = parse_limited_json(call.arguments.get<std::string>());
  if (call.name.empty() || !call.arguments.is_object()) return std::nullopt;
  return call;
}

// False: the text is not one call, or a list of calls.
bool try_add_calls(std::string_view text, std::vector<ToolCall>& calls) {
  const Json json = parse_limited_json(text);
  const Json list = json.is_array() ? json : Json::array({json});
  for (const Json& item : list) {
    std::optional<ToolCall> call = to_call(item);
    if (!call) return false;
    calls.push_back(std::move(*call));
  }
  return !list.empty();
}

// The last block may lack its end: a model may stop right after the object.
bool try_parse_hermes(std::string_view text, ParsedResponse& parsed) {
  size_t at = text.find(kCallBegin);
  if (at == text.npos) return false;
  parsed.content = text.substr(0, at);
  while (at != text.npos) {
    const size_t begin = at + kCallBegin.size(), end = text.find(kCallEnd, begin);
    const size_t bytes = end == text.npos ? text.npos : end - begin;
    if (!try_add_calls(text.substr(begin, bytes), parsed.calls)) return false;
    at = end == text.npos ? end : text.find(kCallBegin, end);
  }
  return true;
}

// The end of the JSON object that begins the text.
size_t object_end(std::string_view text) {
  int64_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return text.size();
}

std::string_view without_leading_space(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text;
}

bool try_parse_llama3(std::string_view text, ParsedResponse& parsed) {
  text = without_leading_space(text);
  if (text.starts_with(kPythonTag)) text = without_leading_space(text.substr(kPythonTag.size()));
  while (text.starts_with('{')) {
    const size_t end = object_end(text);
    if (!try_add_calls(text.substr(0, end), parsed.calls)) return false;
    text = without_leading_space(text.substr(end));
    if (text.starts_with(';')) text = without_leading_space(text.substr(1));
  }
  return text.empty() && !parsed.calls.empty();
}

bool try_parse(ToolCallFormat format, std::string_view text, ParsedResponse& parsed) {
  switch (format) {
    case ToolCallFormat::kHermes:
      return try_parse_hermes(text, parsed);
    case ToolCallFormat::kLlama3:
      return try_parse_llama3(text, parsed);
    case ToolCallFormat::kJson:
      break;
  }
  return try_add_calls(text, parsed.calls);
}

}  // namespace

ParsedResponse parse_tool_calls(ToolCallFormat format, std::string_view text) {
  ParsedResponse parsed;
  if (try_parse(format, text, parsed)) return parsed;
  return {std::string(text), {}};
}

size_t content_bytes(ToolCallFormat format, std::string_view text) {
  if (format == ToolCallFormat::kHermes) {
    if (const size_t at = text.find(kCallBegin); at != text.npos) return at;
    size_t held = std::min(kCallBegin.size() - 1, text.size());
    while (!kCallBegin.starts_with(text.substr(text.size() - held))) --held;
    return text.size() - held;
  }
  const std::string_view begin = without_leading_space(text);
  const bool may_be_calls = begin.empty() || begin.front() == '{' ||
                            (format == ToolCallFormat::kJson && begin.front() == '[') ||
                            (format == ToolCallFormat::kLlama3 &&
                             (begin.starts_with(kPythonTag) || kPythonTag.starts_with(begin)));
  return may_be_calls ? 0 : text.size();
}

ToolCallFormat find_tool_call_format(const ChatTemplate& chat_template) {
  const Json function = {{"name", "f"}, {"arguments", {{"x", 1}}}};
  const Json call = {{"id", "call00000"}, {"type", "function"}, {"function", function}};
  const Json messages = {{{"role", "user"}, {"content", "u"}},
                         {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}}};
  std::string text;
  try {
    text = chat_template.render({.messages = messages}, "tool calls").text;
  } catch (const InputError&) {
    return ToolCallFormat::kJson;  // the template refuses calls
  }
  if (text.find(kCallBegin) != text.npos) return ToolCallFormat::kHermes;
  if (text.find(kPythonTag) != text.npos || text.find("\"parameters\"") != text.npos)
    return ToolCallFormat::kLlama3;
  return ToolCallFormat::kJson;
}

std::optional<ToolCallFormat> parse_tool_call_format(std::string_view name) {
  if (name == "hermes") return ToolCallFormat::kHermes;
  if (name == "llama3_json") return ToolCallFormat::kLlama3;
  if (name == "json") return ToolCallFormat::kJson;
  return std::nullopt;
}

}  // namespace tlt::chat_template
