// SPDX-License-Identifier: Apache-2.0
#include "chat_template/chat_template.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/files.h"
#include "base/json_limits.h"
#include "base/toml_limits.h"

namespace tlt::chat_template {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using SortedJson = nlohmann::json;  // of objects with any number of members: Json takes n^2 steps

constexpr int64_t kMaxFileBytes = int64_t{64} << 20;
constexpr const char* kConfigFile = "tokenizer_config.json";

SortedJson read_object(const fs::path& file) {
  if (!fs::exists(file)) return SortedJson::object();
  const std::string text = read_file(file.string(), kMaxFileBytes);
  check_json_depth(text, file.string());
  SortedJson json = SortedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  TLT_CHECK_INPUT(json.is_object(), file.string(), ": not a JSON object");
  return json;
}

// "<s>" or {"content": "<s>", …}.
Json read_special_tokens(const fs::path& folder) {
  static constexpr auto kRoles = std::to_array<const char*>(
      {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"});
  Json tokens = Json::object();
  for (const char* file : {kConfigFile, "special_tokens_map.json"}) {
    const SortedJson config = read_object(folder / file);
    for (const char* role : kRoles) {
      if (tokens.contains(role) || !config.contains(role)) continue;
      const SortedJson& value = config.at(role);
      const SortedJson& text =
          value.is_object() && value.contains("content") ? value.at("content") : value;
      if (text.is_string()) tokens[role] = text.get<std::string>();
    }
  }
  return tokens;
}

using TemplateSources =
    std::map<std::string, std::pair<std::string, std::string>>;  // template, and its place

// "chat_template" of a JSON file: a string, or a list of {"name", "template"}.
TemplateSources sources_of(const SortedJson& config, const std::string& file) {
  TemplateSources sources;
  if (!config.contains("chat_template") || config.at("chat_template").is_null()) return sources;
  const SortedJson& value = config.at("chat_template");
  if (value.is_string()) {
    sources["default"] = {value.get<std::string>(), file + ": chat_template"};
    return sources;
  }
  TLT_CHECK_INPUT(value.is_array(), file, ": chat_template is neither a text nor a list");
  for (const SortedJson& entry : value) {
    TLT_CHECK_INPUT(entry.is_object() && entry.contains("name") && entry.at("name").is_string() &&
                        entry.contains("template") && entry.at("template").is_string(),
                    file, ": chat_template has an entry without name and template");
    const auto name = entry.at("name").get<std::string>();
    sources[name] = {entry.at("template").get<std::string>(), file + ": chat_template " + name};
  }
  return sources;
}

TemplateSources find_sources(const fs::path& folder) {
  TemplateSources sources;
  const fs::path file = folder / "chat_template.jinja", more = folder / "additional_chat_templates";
  if (fs::exists(file))
    sources["default"] = {read_file(file.string(), kMaxFileBytes), file.string()};
  if (fs::is_directory(more)) {
    for (const auto& entry : fs::directory_iterator(more))
      if (entry.path().extension() == ".jinja")
        sources[entry.path().stem().string()] = {read_file(entry.path().string(), kMaxFileBytes),
                                                 entry.path().string()};
  }
  for (const char* name : {"chat_template.json", kConfigFile})
    if (sources.empty()) sources = sources_of(read_object(folder / name), (folder / name).string());
  return sources;
}

// Removes null fields and copies reasoning to the names that templates use.
Json prepared(const Json& message) {
  Json kept = Json::object();
  const Json* reasoning = nullptr;
  for (const char* name : {"reasoning", "thinking", "reasoning_content"})
    if (message.contains(name) && !message.at(name).is_null()) reasoning = &message.at(name);
  if (reasoning != nullptr) kept["thinking"] = *reasoning;
  auto& fields = kept.get_ref<Json::object_t&>();  // operator[] takes n^2 steps
  for (const auto& [name, value] : message.items()) {
    if (value.is_null()) continue;
    if (name == "thinking")
      kept[name] = value;
    else
      fields.emplace_back(name, value);
  }
  if (reasoning != nullptr) kept["reasoning_content"] = *reasoning;
  return kept;
}

Json to_json(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    Json object = Json::object();
    for (const auto& [key, value] : *table) object[std::string(key.str())] = to_json(value);
    return object;
  }
  if (const auto* array = node.as_array()) {
    Json list = Json::array();
    for (const auto& value : *array) list.push_back(to_json(value));
    return list;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  throw InputError("data.apply_chat_template_kwargs: dates and times are not supported");
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::find(const fs::path& folder) {
  const TemplateSources sources = find_sources(folder);
  if (sources.empty()) return std::nullopt;
  ChatTemplate chat;
  chat.special_tokens_ = read_special_tokens(folder);
  for (const auto& [name, source] : sources)
    chat.templates_.emplace(name, JinjaTemplate::parse(source.first, source.second));
  return chat;
}

ChatTemplate ChatTemplate::read(const fs::path& file, const fs::path& tokenizer_folder) {
  return parse(read_file(file.string(), kMaxFileBytes), file.string(),
               read_special_tokens(tokenizer_folder));
}

ChatTemplate ChatTemplate::parse(std::string_view source, const std::string& name,
                                 Json special_tokens) {
  ChatTemplate chat;
  chat.special_tokens_ = std::move(special_tokens);
  chat.templates_.emplace("default", JinjaTemplate::parse(source, name));
  return chat;
}

const JinjaTemplate& ChatTemplate::choose(const Chat& chat) const {
  const auto tool_use = templates_.find("tool_use");
  if (!chat.tools.is_null() && tool_use != templates_.end()) return tool_use->second;
  const auto standard = templates_.find("default");
  TLT_CHECK_INPUT(standard != templates_.end(),
                  "the model folder has several chat templates, and none is named default");
  return standard->second;
}

bool ChatTemplate::marks_generation(const Chat& chat) const {
  return choose(chat).marks_generation();
}

JinjaRendering ChatTemplate::render(const Chat& chat, const std::string& place,
                                    JinjaLimits limits) const {
  check_messages(chat.messages, place);
  TLT_CHECK_INPUT(
      chat.tools.is_null() ||
          (chat.tools.is_array() &&
           std::ranges::all_of(chat.tools, [](const Json& tool) { return tool.is_object(); })),
      place, ": the tools must be a list of JSON objects");
  if (!limits.now) limits.now = now_;
  Json variables = special_tokens_;
  if (chat.variables.is_object()) variables.update(chat.variables);
  Json messages = Json::array();
  for (const Json& message : chat.messages) messages.push_back(prepared(message));
  variables["messages"] = std::move(messages);
  variables["tools"] = chat.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = chat.add_generation_prompt;
  try {
    return choose(chat).render(variables, limits);
  } catch (const InputError& error) {
    throw InputError(place + ": " + error.what());
  }
}

void check_messages(const Json& messages, const std::string& place) {
  TLT_CHECK_INPUT(messages.is_array() && !messages.empty(), place,
                  ": the prompt must be a text or a list of messages");
  for (const Json& message : messages) {
    TLT_CHECK_INPUT(
        message.is_object() && message.contains("role") && message.at("role").is_string(), place,
        ": a message must be {\"role\": \"…\", \"content\": \"…\"}, not ", message.dump());
  }
}

Json parse_template_variables(const std::string& text) {
  check_json_depth(text, "data.apply_chat_template_kwargs");
  Json variables = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (variables.is_object()) return variables;
  try {
    const std::string line = "value = " + text;
    check_toml_limits(line, "data.apply_chat_template_kwargs");
    const toml::table table = toml::parse(line);
    const toml::node* value = table.get("value");
    if (table.size() == 1 && value != nullptr && value->is_table()) return to_json(*value);
  } catch (const toml::parse_error&) {
  }
  throw InputError("data.apply_chat_template_kwargs: \"" + text +
                   "\" is no table; give one like {enable_thinking = false}");
}

}  // namespace tlt::chat_template
