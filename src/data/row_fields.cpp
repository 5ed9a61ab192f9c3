// SPDX-License-Identifier: Apache-2.0
#include "data/row_fields.h"

#include <initializer_list>
#include <utility>

#include "base/check.h"
#include "data/rows.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

// TRL's `answer` is not included: in GSM8K and others it is the whole solution, not the value that
// a reward compares.
constexpr std::initializer_list<const char*> kAnswers = {"label", "solution", "ground_truth"};
constexpr std::initializer_list<const char*> kSources = {"metadata.source_name"};
constexpr std::initializer_list<const char*> kResponses = {"completion"};
constexpr const char* kMessages = "messages";
constexpr std::initializer_list<const char*> kConversations = {"conversations"};  // ShareGPT's

// The option's field or, if the option has its default, the first field of another known format.
std::string field_of(const Json& row, const std::string& key, const std::string& usual_key,
                     std::initializer_list<const char*> others) {
  if (find_field(row, key) != nullptr) return key;
  if (key != usual_key) return "";
  for (const char* other : others)
    if (find_field(row, other) != nullptr) return other;
  return "";
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// For error messages; the value may be long, or bytes.
std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kLongest = 60;
  return text.size() <= kLongest ? text : std::string("a ") + value.type_name();
}

const std::string& or_else(const std::string& field, const std::string& usual) {
  return field.empty() ? usual : field;
}

// ShareGPT's {"from", "value"} as {"role", "content"}; other messages are unchanged.
Json as_message(const Json& item, const std::string& place) {
  if (!item.is_object() || item.contains("role")) return item;
  constexpr std::pair<const char*, const char*> kRoles[] = {
      {"human", "user"},          {"user", "user"},     {"gpt", "assistant"},
      {"assistant", "assistant"}, {"system", "system"}, {"tool", "tool"}};
  for (const auto& [from, role] : kRoles)
    if (item.value("from", Json()) == from && item.contains("value"))
      return {{"role", role}, {"content", item["value"]}};
  throw InputError(place + ": a message is " + shown(item) +
                   R"(; give {"role", "content"}, or ShareGPT's {"from": "human", "value": "…"})");
}

bool has_list(const Json& row, const std::string& field) {
  const Json* found = field.empty() ? nullptr : find_field(row, field);
  return found != nullptr && found->is_array();
}

}  // namespace

const Json& require_prompt(const Json& row, const DataOptions& options, const std::string& place) {
  const bool has_none = find_field(row, options.prompt_key) == nullptr;
  TLT_CHECK_INPUT(!has_none || !row.contains("instruction") || !row.contains("output"), place,
                  ": an Alpaca row; set data.prompt_template=\"{instruction}\\n{input}\" and "
                  "data.response_key=output");
  TLT_CHECK_INPUT(!has_none || conversation_field(row).empty(), place, ": a conversation under \"",
                  conversation_field(row),
                  "\", as tlt sft and tlt draft read it, and no prompt; set data.prompt_key");
  return require_field(row, options.prompt_key, place, "data.prompt_key");
}

std::string response_field(const Json& row, const DataOptions& options) {
  return field_of(row, options.response_key, DataOptions().response_key, kResponses);
}

std::string conversation_field(const Json& row) {
  return field_of(row, kMessages, kMessages, kConversations);
}

Json conversation_of(const Json& row, const DataOptions& options, const std::string& place) {
  const std::string response = response_field(row, options);
  Json messages;
  if (has_list(row, options.prompt_key) && has_list(row, response)) {
    messages = *find_field(row, options.prompt_key);
    for (const Json& message : *find_field(row, response)) messages.push_back(message);
    return messages;
  }
  const std::string field = conversation_field(row);
  if (!response.empty() || field.empty()) return messages;
  const Json& conversation = *find_field(row, field);
  if (!conversation.is_array()) return conversation;  // check_messages() reports what it is
  return as_messages(conversation, place);
}

Json as_messages(const Json& list, const std::string& place) {
  Json messages = Json::array();
  for (const Json& item : list) messages.push_back(as_message(item, place));
  return messages;
}

void check_prompt_type(const Json& row, const DataOptions& options, const std::string& place) {
  const Json* prompt = find_field(row, options.prompt_key);
  TLT_CHECK_INPUT(!options.prompt_template.empty() || prompt == nullptr || prompt->is_string() ||
                      prompt->is_array(),
                  place, ": column ", options.prompt_key, " is ", shown(*prompt),
                  "; a prompt is a text or a list of messages, and data.prompt_key names it");
}

std::string answer_field(const Json& row, const DataOptions& options) {
  return field_of(row, options.answer_key, DataOptions().answer_key, kAnswers);
}

std::string source_field(const Json& row, const DataOptions& options) {
  return field_of(row, options.reward_fn_key, DataOptions().reward_fn_key, kSources);
}

std::string ground_truth_of(const Json& row, const DataOptions& options, const std::string& place,
                            bool is_required) {
  const std::string found = answer_field(row, options);
  if (found.empty() && !is_required && options.answer_key == DataOptions().answer_key) return "";
  const std::string field = or_else(found, options.answer_key);
  const std::string answer = text_of(require_field(row, field, place, "data.answer_key"));
  if (options.answer_after.empty()) return answer;
  const size_t mark = answer.rfind(options.answer_after);
  TLT_CHECK_INPUT(mark != std::string::npos, place, ": no \"", options.answer_after,
                  "\" in the answer; set data.answer_after");
  return trimmed(answer.substr(mark + options.answer_after.size()));
}

std::string data_source_of(const Json& row, const DataOptions& options, const std::string& place,
                           bool is_required) {
  if (!options.data_source.empty()) return options.data_source;
  const std::string found = source_field(row, options);
  if (found.empty() && !is_required && options.reward_fn_key == DataOptions().reward_fn_key)
    return "";
  const std::string field = or_else(found, options.reward_fn_key);
  return text_of(require_field(row, field, place, "data.reward_fn_key or data.data_source"));
}

Json prompt_messages(const Json& row, const DataOptions& options) {
  const Json* prompt = find_field(row, options.prompt_key);
  return options.prompt_template.empty() && prompt != nullptr && prompt->is_array() ? *prompt
                                                                                    : Json();
}

Json extra_info_of(const Json& row, const DataOptions& options) {
  if (const Json* extra = find_field(row, "extra_info")) return *extra;
  const Json* metadata = find_field(row, "metadata");
  if (metadata != nullptr && metadata->is_object()) return *metadata;
  Json columns = row;
  if (options.prompt_template.empty()) columns.erase(options.prompt_key);
  return columns;
}

}  // namespace tlt::data
