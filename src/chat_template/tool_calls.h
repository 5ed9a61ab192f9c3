// Tool calls: finds them in the text of a response, in the format that the model was trained with.
//
//   kHermes   <tool_call>{"name": "f", "arguments": {…}}</tool_call>, any number (Qwen, Hermes)
//   kLlama3   {"name": "f", "parameters": {…}}, more of them after ";", all after an optional
//             <|python_tag|>
//   kJson     {"name": "f", "arguments": {…}}, or a list of them
//
// A text in which one call does not parse is content as a whole.
//
// Threading  any thread.
//
//   const ToolCallFormat format = find_tool_call_format(*chat_template);
//   const ParsedResponse parsed = parse_tool_calls(format, text);
//   for (const ToolCall& call : parsed.calls) … call.name, call.arguments …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template/chat_template.h"

namespace tlt::chat_template {

enum class ToolCallFormat { kHermes, kLlama3, kJson };

struct ToolCall {
  std::string name;
  nlohmann::ordered_json arguments;  // an object
};

struct ParsedResponse {
  std::string content;  // the text before the calls; without calls the whole text
  std::vector<ToolCall> calls;
};

ParsedResponse parse_tool_calls(ToolCallFormat format, std::string_view text);

// Number of leading bytes of an unfinished text that are content whatever follows: they can be
// streamed.
size_t content_bytes(ToolCallFormat format, std::string_view text);

// The format in which the template writes an assistant's calls; kJson if it writes none.
ToolCallFormat find_tool_call_format(const ChatTemplate& chat_template);

// Parses "hermes", "llama3_json" or "json", as in vLLM's --tool-call-parser; nullopt: another word.
std::optional<ToolCallFormat> parse_tool_call_format(std::string_view name);

}  // namespace tlt::chat_template
