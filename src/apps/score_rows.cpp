// SPDX-License-Identifier: Apache-2.0
#include "apps/score_rows.h"

#include "base/check.h"
#include "data/chat_spans.h"

namespace tlt::apps {
namespace {

using nlohmann::json;

class ScoreRowReader {
 public:
  explicit ScoreRowReader(const PromptFormat& format) : format_(format), encoder_(format) {}

  void read(const json& json, InputRow& row) {
    if (json.contains("messages")) {
      read_messages(json, row);
    } else if (json.contains("response")) {
      read_strings(json, row);
    } else if (json.contains("prompt_tokens")) {
      read_response_tokens(json, row);
    } else {
      TLT_CHECK_INPUT(json.contains("tokens"), row.place,
                      ": no \"tokens\", \"prompt\" and \"response\", or \"messages\"; give one of "
                      "these forms");
      TLT_CHECK_INPUT(!json.contains("prompt"), row.place,
                      ": \"prompt\" and \"tokens\": give \"prompt_tokens\" for the prompt, or "
                      "\"response\" for the response as a string");
      row.tokens = tokens_of(json, row.place, format_.vocabulary);
    }
  }

 private:
  static void set(InputRow& row, std::vector<int32_t> prompt,
                  const std::vector<int32_t>& response) {
    row.response_begin = static_cast<int32_t>(prompt.size());
    row.tokens = std::move(prompt);
    row.tokens.insert(row.tokens.end(), response.begin(), response.end());
  }

  void read_response_tokens(const json& json, InputRow& row) const {
    set(row, tokens_of(json, row.place, format_.vocabulary, "prompt_tokens"),
        tokens_of(json, row.place, format_.vocabulary));
  }

  void read_strings(const json& json, InputRow& row) {
    TLT_CHECK_INPUT(
        json["response"].is_string(), row.place,
        ": the response is not a string; give one, or \"prompt_tokens\" and \"tokens\"");
    row.is_text = true;
    std::vector<int32_t> prompt = encoder_.encode(json, row.place);
    set(row, std::move(prompt),
        encoder_.encode_text(json["response"].get<std::string>(), row.place));
  }

  void read_messages(const json& json, InputRow& row) {
    encoder_.check_tokenizer(row.place);
    data::Chat chat{.messages = json["messages"]};
    if (json.contains("tools")) chat.tools = json["tools"];
    data::ChatTokens last =
        data::chat_tokens(encoder_.chat_template(), *format_.tokenizer, chat, row.place).back();
    row.is_text = true;
    row.tokens = std::move(last.tokens);
    row.response_begin = static_cast<int32_t>(last.spans.back().first);
  }

  const PromptFormat format_;
  PromptEncoder encoder_;
};

}  // namespace

std::vector<InputRow> read_score_rows(const std::string& path, const PromptFormat& format) {
  ScoreRowReader reader(format);
  return read_rows(path, [&](const json& json, InputRow& row) { reader.read(json, row); });
}

}  // namespace tlt::apps
