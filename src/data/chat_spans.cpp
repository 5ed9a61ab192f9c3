// SPDX-License-Identifier: Apache-2.0
#include "data/chat_spans.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/check.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;
using Span = std::pair<int64_t, int64_t>;

bool begins_with(const Tokens& tokens, const Tokens& prefix) {
  return prefix.size() <= tokens.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

// The tokens of byte ranges of a text. A SentencePiece tokenizer adds a leading space that is not
// in the text.
class TokenPositions {
 public:
  TokenPositions(const tokenizer::Tokenizer& tokenizer, const Tokens& tokens, std::string_view text,
                 const std::string& place) {
    std::string bytes;  // of the tokens so far: a prefix of the text, or the check fails
    for (const int32_t token : tokens) {
      if (bytes.size() > text.size()) break;
      std::string_view of_token = tokenizer.token_bytes(token);
      const bool has_more =
          of_token.starts_with(' ') && !text.substr(bytes.size()).starts_with(of_token);
      if (has_more) of_token.remove_prefix(1);
      bytes += of_token;
      ends_.push_back(std::ssize(bytes));
    }
    TLT_CHECK_INPUT(bytes == text, place,
                    ": the tokenizer changes the text, so the bytes of {% generation %} blocks are "
                    "not those of tokens; give rows of prompt and response");
  }

  Span of(Span bytes) const {
    const auto begin = std::ranges::upper_bound(ends_, bytes.first) - ends_.begin();
    const auto end = std::ranges::lower_bound(ends_, bytes.second) - ends_.begin();
    return {begin, bytes.second > bytes.first ? end + 1 : begin};
  }

 private:
  std::vector<int64_t> ends_;  // by token, in bytes
};

constexpr const char* kInstead =
    "give a template with {% generation %} blocks, or rows of prompt and response";
constexpr const char* kOtherwise =
    ": the chat template changes the earlier messages once this one follows, and appends more than "
    "its content, so the assistant's tokens cannot be determined; ";

// Whether a message has content only.
bool is_plain(const Json& message) {
  return std::ranges::none_of(
      std::to_array<const char*>({"tool_calls", "reasoning_content", "reasoning", "thinking"}),
      [&](const char* name) { return message.contains(name) && !message.at(name).empty(); });
}

// Number of bytes of the answer that the generation prompt already contains: "<think>\n" if the
// template writes "<Assistant>" before a message and "<Assistant><think>\n" as generation prompt.
// nullopt: the prompt does not match.
std::optional<size_t> prompted_bytes(std::string_view generation_prompt, std::string_view written,
                                     std::string_view words) {
  for (size_t prompted = generation_prompt.size(); prompted > 0; --prompted)
    if (words.starts_with(generation_prompt.substr(generation_prompt.size() - prompted)) &&
        written.starts_with(generation_prompt.substr(0, generation_prompt.size() - prompted)))
      return prompted;
  return std::nullopt;
}

bool is_blank(std::string_view bytes) { return bytes.find_first_not_of(" \t\r\n") == bytes.npos; }

class SpanFinder {
 public:
  SpanFinder(const chat_template::ChatTemplate& chat_template,
             const tokenizer::Tokenizer& tokenizer, const chat_template::Chat& chat,
             const std::string& place)
      : template_(chat_template), tokenizer_(tokenizer), chat_(chat), place_(place) {}

  std::vector<ChatTokens> find() {
    if (template_.marks_generation(chat_)) {
      add_marked();
    } else {
      for (size_t i = 0; i < chat_.messages.size(); ++i)
        if (chat_.messages[i].at("role") == "assistant") add_message(i);
      share_rows();
    }
    TLT_CHECK_INPUT(!rows_.empty(), place_,
                    ": the conversation has no assistant message to learn from");
    return std::move(rows_);
  }

 private:
  void add_marked() {
    const chat_template::JinjaRendering whole = template_.render(chat_, place_);
    ChatTokens row{.tokens = tokenizer_.encode(whole.text), .spans = {}};
    const TokenPositions positions(tokenizer_, row.tokens, whole.text, place_);
    for (const Span& bytes : whole.generated) {
      Span span = positions.of(bytes);
      span.first = std::max<int64_t>(span.first, 1);  // the first token of all is never predicted
      span.second = end_of(row.tokens, span);
      if (span.first < span.second) row.spans.push_back(span);
    }
    if (row.spans.empty()) return;
    row.tokens.resize(static_cast<size_t>(row.spans.back().second));
    rows_.push_back(std::move(row));
  }

  // The conversation's first messages, rendered.
  std::string text_of(size_t messages, bool add_generation_prompt) const {
    chat_template::Chat begin = chat_;
    begin.messages.erase(begin.messages.begin() + static_cast<std::ptrdiff_t>(messages),
                         begin.messages.end());
    begin.add_generation_prompt = add_generation_prompt;
    return template_.render(begin, place_).text;
  }

  // Appends a row for this message only.
  void add_message(size_t i) {
    const std::string name = place_ + ": message " + std::to_string(i + 1);
    TLT_CHECK_INPUT(i > 0, name, ": a conversation to learn from cannot begin with the assistant");
    const std::string before = text_of(i, /*add_generation_prompt=*/true);
    const std::string through = text_of(i + 1, /*add_generation_prompt=*/false);
    const Tokens prompt = tokenizer_.encode(before);
    Tokens tokens = tokenizer_.encode(through);
    if (!begins_with(tokens, prompt)) {
      const Tokens answer = through.starts_with(before)
                                ? encode_exactly(through.substr(before.size()), name)
                                : own_words(i, before, through, name);
      tokens = prompt;
      tokens.insert(tokens.end(), answer.begin(), answer.end());
    }
    Span span = {std::max<int64_t>(std::ssize(prompt), 1), std::ssize(tokens)};
    span.second = end_of(tokens, span);
    if (span.first >= span.second) return;
    tokens.resize(static_cast<size_t>(span.second));
    rows_.push_back({std::move(tokens), {span}});
  }

  // Encodes what follows a prompt separately, as the model generates it: no token spans the
  // boundary.
  Tokens encode_exactly(const std::string& text, const std::string& name) const {
    const Tokens tokens = tokenizer_.encode(text);
    TLT_CHECK_INPUT(
        bytes_of(tokens) == text, name,
        ": the tokenizer changes the message when encoded separately, so the assistant's "
        "tokens cannot be determined; ",
        kInstead);
    return tokens;
  }

  // The answer of a message that the template does not write after the prompt that it answers:
  // DeepSeek's template starts the answer with <think> and leaves reasoning out of messages;
  // Mistral's writes the system message only into the last message. The answer is the message's
  // content after the part that the prompt already contains, and the template's end-of-sequence
  // token.
  Tokens own_words(size_t i, const std::string& before, const std::string& through,
                   const std::string& name) const {
    const Json& message = chat_.messages[i];
    Tokens written = tokenizer_.encode(through);
    written.resize(static_cast<size_t>(end_of(written, {0, std::ssize(written)})));
    const bool is_text = is_plain(message) && message.contains("content") &&
                         message.at("content").is_string() && !written.empty() &&
                         is_eos(written.back());
    TLT_CHECK_INPUT(is_text, name, kOtherwise, kInstead);
    const int32_t last = written.back();
    written.pop_back();
    const std::string rendered = bytes_of(written);
    TLT_CHECK_INPUT(through.starts_with(rendered), name, kOtherwise, kInstead);
    const std::string content = message.at("content");

    const std::string without_prompt = text_of(i, /*add_generation_prompt=*/false);
    std::string_view words = content;
    if (before == without_prompt) {
      TLT_CHECK_INPUT(rendered.ends_with(words), name, kOtherwise, kInstead);
    } else {
      TLT_CHECK_INPUT(before.starts_with(without_prompt) && rendered.starts_with(without_prompt),
                      name, kOtherwise, kInstead);
      const auto generation_prompt = std::string_view(before).substr(without_prompt.size());
      const auto own = std::string_view(rendered).substr(without_prompt.size());
      const auto prompted = prompted_bytes(generation_prompt, own, words);
      const bool is_known =
          prompted && words.ends_with(own.substr(generation_prompt.size() - *prompted));
      TLT_CHECK_INPUT(is_known, name, ": its generation prompt is ", Json(generation_prompt).dump(),
                      ", but the chat template writes the message without it; begin the message's "
                      "content as an answer to it, or ",
                      kInstead);
      words.remove_prefix(*prompted);
    }
    Tokens tokens = encode_exactly(std::string(words), name);
    tokens.push_back(last);
    return tokens;
  }

  std::string bytes_of(const Tokens& tokens) const {
    std::string bytes;
    for (const int32_t token : tokens) bytes += tokenizer_.token_bytes(token);
    return bytes;
  }

  bool is_eos(int32_t token) const {
    const auto& eos = tokenizer_.roles().eos;
    return std::ranges::find(eos, token) != eos.end();
  }

  // Position after the span's last end-of-sequence token, or after an earlier one with only blanks
  // between them (Phi ends a turn with <|end|> and a conversation also with <|endoftext|>).
  int64_t end_of(const Tokens& tokens, Span span) const {
    int64_t end = span.second;
    bool is_ended = false;
    for (int64_t at = span.second; at > span.first; --at) {
      const int32_t token = tokens[static_cast<size_t>(at) - 1];
      if (is_eos(token)) {
        end = at;
        is_ended = true;
      } else if (is_ended && !is_blank(tokenizer_.token_bytes(token))) {
        break;
      }
    }
    return end;
  }

  // From the last row on, merges each row into a later row that begins with all its tokens.
  void share_rows() {
    std::vector<ChatTokens> shared;
    for (auto row = rows_.rbegin(); row != rows_.rend(); ++row) {
      const auto host = std::ranges::find_if(shared, [&](const ChatTokens& other) {
        return begins_with(other.tokens, row->tokens) &&
               row->spans[0].second <= other.spans[0].first;
      });
      if (host == shared.end()) {
        shared.push_back(std::move(*row));
      } else {
        host->spans.insert(host->spans.begin(), row->spans[0]);
      }
    }
    std::ranges::reverse(shared);
    rows_ = std::move(shared);
  }

  const chat_template::ChatTemplate& template_;
  const tokenizer::Tokenizer& tokenizer_;
  const chat_template::Chat& chat_;
  const std::string& place_;
  std::vector<ChatTokens> rows_;
};

}  // namespace

std::vector<ChatTokens> chat_tokens(const chat_template::ChatTemplate& chat_template,
                                    const tokenizer::Tokenizer& tokenizer,
                                    const chat_template::Chat& chat, const std::string& place) {
  return SpanFinder(chat_template, tokenizer, chat, place).find();
}

}  // namespace tlt::data
