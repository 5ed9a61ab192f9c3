// SPDX-License-Identifier: Apache-2.0
#include "data/prompt_renderer.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/local_time.h"
#include "data/row_fields.h"
#include "data/rows.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kToolsField = "tools";

// data.chat_template=chatml: Qwen 2.5's turns and system message, for any model.
constexpr const char* kChatMl = R"({%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('role "' ~ message.role ~ '" is not known; give system, user or assistant') }}
    {%- endif %}
    {%- if message.content is not string %}
        {{- raise_exception('a message must be {"role": "…", "content": "…"}') }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})";

// Removes tokens until `limit` are left; in the middle as in verl: the first limit / 2 are kept.
void cut(std::vector<int32_t>& tokens, int64_t limit, const std::string& where) {
  const int64_t kept_in_front = where == "left" ? 0 : where == "right" ? limit : limit / 2;
  const int64_t surplus = std::ssize(tokens) - limit;
  tokens.erase(tokens.begin() + kept_in_front, tokens.begin() + kept_in_front + surplus);
}

}  // namespace

Json user_message(const std::string& text) {
  return Json::array({{{"role", "user"}, {"content", text}}});
}

PromptRenderer::PromptRenderer(const DataOptions& options, tokenizer::Tokenizer tokenizer)
    : options_(options),
      tokenizer_(std::move(tokenizer)),
      variables_(chat_template::parse_template_variables(options.apply_chat_template_kwargs)) {
  if (!options_.prompt_template.empty()) template_.emplace(options_.prompt_template);
  const std::string& wanted = options_.chat_template;
  const std::string& folder = tokenizer_.folder();
  if (wanted == "chatml") {
    chat_template_ =
        chat_template::ChatTemplate::parse(kChatMl, "data.chat_template=chatml", Json::object());
  } else if (wanted.ends_with(".jinja")) {
    chat_template_ = chat_template::ChatTemplate::read(wanted, folder);
  } else if (wanted == "none") {
    chat_fault_ = "data.chat_template is none; set data.chat_template=auto";
  } else {
    try {
      chat_template_ = chat_template::ChatTemplate::find(folder);
      chat_fault_ = "the model folder " + folder +
                    " has no chat template; set data.chat_template=chatml or to a .jinja file";
    } catch (const InputError& error) {
      chat_fault_ = error.what();  // not needed if prompts are texts
    }
    TLT_CHECK_INPUT(chat_template_ || wanted == "auto",
                    "data.chat_template is model: ", chat_fault_);
  }
  if (chat_template_ && !options_.template_time.empty())
    chat_template_->set_time(parse_local_time(options_.template_time, "the run's start"));
}

std::string PromptRenderer::text(const nlohmann::ordered_json& row,
                                 const std::string& place) const {
  Json prompt = prompt_of(row, place);
  if (prompt.is_string() && !wraps_text() && options_.opens_turn) return prompt.get<std::string>();
  Json list = to_messages(std::move(prompt), place);
  chat_template::check_messages(list, place);
  const chat_template::ChatTemplate& chat_template = require_chat_template(place);
  chat_template::Chat chat = chat_of(row, std::move(list), place);
  chat.add_generation_prompt = options_.opens_turn;
  return chat_template.render(chat, place).text;
}

bool PromptRenderer::wraps_text() const {
  return options_.chat_template != "none" && options_.chat_template != "auto";
}

Json PromptRenderer::prompt_of(const Json& row, const std::string& place) const {
  return template_ ? Json(template_->render(row, place))
                   : Json(require_prompt(row, options_, place));
}

Json PromptRenderer::messages(const Json& row, const std::string& place) const {
  return to_messages(prompt_of(row, place), place);
}

Json PromptRenderer::to_messages(Json prompt, const std::string& place) const {
  if (!prompt.is_string()) return prompt;
  TLT_CHECK_INPUT(wraps_text(), place,
                  ": the prompt is a text, and an environment needs a conversation; set "
                  "data.chat_template=model to make it a user message");
  return user_message(prompt.get<std::string>());
}

Json PromptRenderer::tools(const Json& row, const std::string& place) const {
  return chat_of(row, Json::array(), place).tools;
}

std::string PromptRenderer::conversation(chat_template::Chat chat, const std::string& place) const {
  chat.variables = variables_;
  return require_chat_template(place).render(chat, place).text;
}

const chat_template::ChatTemplate& PromptRenderer::require_chat_template(
    const std::string& place) const {
  TLT_CHECK_INPUT(chat_template_, place, ": the row has a list of messages, and ", chat_fault_);
  return *chat_template_;
}

// Tools may be a list, or the list as a JSON string, which keeps the order of its keys.
chat_template::Chat PromptRenderer::chat_of(const nlohmann::ordered_json& row, Json messages,
                                            const std::string& place) const {
  chat_template::Chat chat{.messages = std::move(messages), .variables = variables_};
  const auto* tools = find_field(row, kToolsField);
  if (tools == nullptr) return chat;
  if (tools->is_string()) check_json_limits(tools->get_ref<const std::string&>(), place);
  chat.tools = tools->is_string() ? Json::parse(tools->get_ref<const std::string&>(), nullptr,
                                                /*allow_exceptions=*/false)
                                  : Json(*tools);
  TLT_CHECK_INPUT(chat.tools.is_array(), place, ": \"", kToolsField,
                  "\" is no list of tools; give a list of JSON schemas, or rename the field");
  return chat;
}

bool PromptRenderer::leaves_out_template(const nlohmann::ordered_json& row) const {
  if (!chat_template_ || options_.chat_template != "auto") return false;
  const auto* prompt = find_field(row, options_.prompt_key);
  return template_.has_value() || (prompt != nullptr && prompt->is_string());
}

std::vector<ChatTokens> PromptRenderer::training_rows(const nlohmann::ordered_json& row,
                                                      Json messages,
                                                      const std::string& place) const {
  chat_template::check_messages(messages, place);
  const chat_template::ChatTemplate& chat_template = require_chat_template(place);
  return chat_tokens(chat_template, tokenizer_, chat_of(row, std::move(messages), place), place);
}

std::optional<std::vector<ChatTokens>> PromptRenderer::try_conversation(
    const nlohmann::ordered_json& row, const std::string& place) const {
  Json conversation(conversation_of(row, options_, place));
  if (conversation.is_null()) return std::nullopt;
  return training_rows(row, std::move(conversation), place);
}

std::optional<std::vector<int32_t>> PromptRenderer::try_tokens(const std::string& text,
                                                               const std::string& place) const {
  std::vector<int32_t> tokens = tokenizer_.encode(text);
  TLT_CHECK_INPUT(!tokens.empty(), place, ": the prompt is empty");
  if (std::ssize(tokens) <= options_.max_prompt_length) return tokens;
  if (options_.filter_overlong_prompts) return std::nullopt;
  TLT_CHECK_INPUT(options_.truncation != "error", place, ": the prompt has ", tokens.size(),
                  " tokens and data.max_prompt_length is ", options_.max_prompt_length,
                  "; raise it, or set data.filter_overlong_prompts=true or data.truncation=left");
  cut(tokens, options_.max_prompt_length, options_.truncation);
  return tokens;
}

}  // namespace tlt::data
