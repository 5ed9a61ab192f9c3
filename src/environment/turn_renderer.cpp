// SPDX-License-Identifier: Apache-2.0
#include "environment/turn_renderer.h"

#include "base/check.h"

namespace tlt::environment {
namespace {

using chat_template::Chat;
using Json = nlohmann::ordered_json;

constexpr const char* kPlace = "environment.command";
constexpr std::string_view kMark = "7777";  // the assistant's text of a probe

chat_template::ToolCallFormat format_of(const EnvironmentOptions& options,
                                        const data::PromptRenderer& renderer) {
  if (const auto named = chat_template::parse_tool_call_format(options.tool_calls)) return *named;
  return chat_template::find_tool_call_format(renderer.require_chat_template(kPlace));
}

Json probe() {
  return Json::array({{{"role", "user"}, {"content", "1"}},
                      {{"role", "assistant"}, {"content", std::string(kMark)}}});
}

}  // namespace

TurnRenderer::TurnRenderer(const data::DataOptions& data, const EnvironmentOptions& options,
                           const tokenizer::Tokenizer& tokenizer,
                           std::span<const int32_t> stop_tokens)
    : renderer_(data, tokenizer),
      tokenizer_(tokenizer),
      stop_tokens_(stop_tokens.begin(), stop_tokens.end()),
      template_name_(data.chat_template),
      format_(format_of(options, renderer_)),
      closing_(find_closing()) {
  check_stable();
}

std::string TurnRenderer::find_closing() const {
  const std::string text = renderer_.conversation({.messages = probe()}, kPlace);
  const size_t at = text.rfind(kMark);
  TLT_CHECK_INPUT(at != text.npos, kPlace, ": data.chat_template=", template_name_,
                  " does not write the assistant's messages as they are; give a .jinja file that "
                  "does");
  return text.substr(at + kMark.size());
}

// A template may refuse one of the roles; messages are checked again when they are rendered.
void TurnRenderer::check_stable() const {
  std::string fault;
  for (const char* role : {"tool", "user"}) {
    try {
      added_text({.messages = probe()}, Json::array({{{"role", role}, {"content", "2"}}}), kPlace);
      return;
    } catch (const InputError& error) {
      fault = error.what();
    }
  }
  throw InputError(fault);
}

std::string TurnRenderer::added_text(Chat chat, const Json& added, const std::string& place) const {
  const std::string before = renderer_.conversation(chat, place);
  for (const Json& message : added) chat.messages.push_back(message);
  chat.add_generation_prompt = true;
  const std::string after = renderer_.conversation(chat, place);
  TLT_CHECK_INPUT(
      after.starts_with(before), place, ": data.chat_template=", template_name_,
      " renders a conversation differently once more messages follow",
      added.empty() ? std::string() : " (role " + added.back().value("role", "") + ")",
      ", so turns cannot be appended to it; use a template that keeps earlier messages as they "
      "were (a .jinja file), or another role for the environment's messages");
  return after.substr(before.size());
}

std::vector<int32_t> TurnRenderer::prompt(const Chat& chat, const std::string& place) const {
  chat_template::check_messages(chat.messages, place);
  auto tokens = renderer_.try_tokens(renderer_.conversation(chat, place), place);
  TLT_CHECK_INPUT(tokens, place, ": the prompt is longer than data.max_prompt_length");
  return *std::move(tokens);
}

std::vector<int32_t> TurnRenderer::open(const Chat& prompt, const Json& added,
                                        const std::string& place) const {
  return tokenizer_.encode(added_text(prompt, added, place));
}

std::vector<int32_t> TurnRenderer::observe(const Chat& chat, const Json& added, int32_t last,
                                           const std::string& place) const {
  std::string text = closing_ + added_text(chat, added, place);
  // The stop token was sampled already.
  if (const std::string end = tokenizer_.decode(std::span(&last, 1));
      stop_tokens_.contains(last) && closing_.starts_with(end))
    text.erase(0, end.size());
  return tokenizer_.encode(text);
}

Json TurnRenderer::message(std::span<const int32_t> turn) const {
  if (!turn.empty() && stop_tokens_.contains(turn.back())) turn = turn.first(turn.size() - 1);
  const auto parsed = chat_template::parse_tool_calls(format_, tokenizer_.decode(turn));
  Json message = {{"role", "assistant"}, {"content", parsed.content}};
  for (size_t i = 0; i < parsed.calls.size(); ++i)
    message["tool_calls"].push_back(
        {{"id", "call" + std::to_string(100'000 + i).substr(1)},
         {"type", "function"},
         {"function", {{"name", parsed.calls[i].name}, {"arguments", parsed.calls[i].arguments}}}});
  return message;
}

}  // namespace tlt::environment
