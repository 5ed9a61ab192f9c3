// SPDX-License-Identifier: Apache-2.0
#include "data/row_fields.h"

#include <initializer_list>

#include "base/check.h"
#include "data/rows.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

// TRL's `answer` is not among them: in GSM8K and others it is the whole solution, not what a reward
// compares.
constexpr std::initializer_list<const char*> kAnswers = {"label", "solution", "ground_truth"};
constexpr std::initializer_list<const char*> kSources = {"metadata.source_name"};

// The option's field or, where the option was not set, the first of the other forms'.
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

// For a message; it may be long, or bytes.
std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kLongest = 60;
  return text.size() <= kLongest ? text : std::string("a ") + value.type_name();
}

std::string or_else(std::string field, const std::string& usual) {
  return field.empty() ? usual : field;
}

}  // namespace

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

std::string ground_truth_of(const Json& row, const DataOptions& options, const std::string& place) {
  const std::string field = or_else(answer_field(row, options), options.answer_key);
  const std::string answer = text_of(require_field(row, field, place, "data.answer_key"));
  if (options.answer_after.empty()) return answer;
  const size_t mark = answer.rfind(options.answer_after);
  TLT_CHECK_INPUT(mark != std::string::npos, place, ": no \"", options.answer_after,
                  "\" in the answer; set data.answer_after");
  return trimmed(answer.substr(mark + options.answer_after.size()));
}

std::string data_source_of(const Json& row, const DataOptions& options, const std::string& place) {
  if (!options.data_source.empty()) return options.data_source;
  const std::string field = or_else(source_field(row, options), options.reward_fn_key);
  return text_of(require_field(row, field, place, "data.reward_fn_key or data.data_source"));
}

Json extra_info_of(const Json& row, const DataOptions& options) {
  if (const Json* extra = find_field(row, "extra_info")) return *extra;
  const Json* metadata = find_field(row, "metadata");
  if (metadata != nullptr && metadata->is_object()) return *metadata;
  if (!options.prompt_template.empty()) return Json::object();
  Json columns = row;
  for (const std::string& used :
       {options.prompt_key, answer_field(row, options), source_field(row, options)})
    columns.erase(used);
  return columns;
}

}  // namespace tlt::data
