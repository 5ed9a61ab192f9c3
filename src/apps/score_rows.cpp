// SPDX-License-Identifier: Apache-2.0
#include "apps/score_rows.h"

#include "base/check.h"
#include "data/chat_spans.h"

namespace tlt::apps {
namespace {

using nlohmann::json;

class ScoreRowReader {
 public:
  explicit ScoreRowReader(const cli::PromptFormat& format) : format_(format), encoder_(format) {}

  void read(const json& json, cli::InputRow& row) {
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
      row.tokens = cli::tokens_of(json, row.place, format_.vocabulary);
    }
  }

 private:
  static void set(cli::InputRow& row, std::vector<int32_t> prompt,
                  const std::vector<int32_t>& response) {
    row.response_begin = static_cast<int32_t>(prompt.size());
    row.tokens = std::move(prompt);
    row.tokens.insert(row.tokens.end(), response.begin(), response.end());
  }

  void read_response_tokens(const json& json, cli::InputRow& row) const {
    set(row, cli::tokens_of(json, row.place, format_.vocabulary, "prompt_tokens"),
        cli::tokens_of(json, row.place, format_.vocabulary));
  }

  void read_strings(const json& json, cli::InputRow& row) {
    TLT_CHECK_INPUT(
        json["response"].is_string(), row.place,
        ": the response is not a string; give one, or \"prompt_tokens\" and \"tokens\"");
    row.is_text = true;
    std::vector<int32_t> prompt = encoder_.encode(json, row.place);
    set(row, std::move(prompt),
        encoder_.encode_text(json["response"].get<std::string>(), row.place));
  }

  void read_messages(const json& json, cli::InputRow& row) {
    encoder_.check_tokenizer(row.place);
    chat_template::Chat chat{.messages = json["messages"]};
    if (json.contains("tools")) chat.tools = json["tools"];
    data::ChatTokens last =
        data::chat_tokens(encoder_.chat_template(), *format_.tokenizer, chat, row.place).back();
    row.is_text = true;
    row.tokens = std::move(last.tokens);
    row.response_begin = static_cast<int32_t>(last.spans.back().first);
  }

  const cli::PromptFormat format_;
  cli::PromptEncoder encoder_;
};

}  // namespace

std::vector<cli::InputRow> read_score_rows(const std::string& path,
                                           const cli::PromptFormat& format) {
  ScoreRowReader reader(format);
  return cli::read_rows(path,
                        [&](const json& json, cli::InputRow& row) { reader.read(json, row); });
}

}  // namespace tlt::apps
