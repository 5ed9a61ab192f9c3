// SPDX-License-Identifier: Apache-2.0
#include "data/chat_spans.h"

#include <algorithm>
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

// The tokens that stand for some of these bytes of the text. SentencePiece's kind of tokenizer has
// a space in front of a text that the text has not.
class TokenPlaces {
 public:
  TokenPlaces(const Tokenizer& tokenizer, const Tokens& tokens, std::string_view text,
              const std::string& place) {
    std::string bytes;  // of the tokens so far: the begin of the text, or the check fails
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
  std::vector<int64_t> ends_;  // of each token, in bytes
};

class SpanFinder {
 public:
  SpanFinder(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const Chat& chat,
             const std::string& place)
      : template_(chat_template), tokenizer_(tokenizer), chat_(chat), place_(place) {}

  ChatTokens find() {
    const JinjaRendering whole = template_.render(chat_, place_);
    found_.tokens = tokenizer_.encode(whole.text);
    if (template_.marks_generation(chat_)) {
      const TokenPlaces places(tokenizer_, found_.tokens, whole.text, place_);
      for (const Span& bytes : whole.generated) add(places.of(bytes));
    } else {
      for (size_t i = 0; i < chat_.messages.size(); ++i)
        if (chat_.messages[i].at("role") == "assistant") add(span_of_message(i));
    }
    TLT_CHECK_INPUT(!found_.spans.empty(), place_,
                    ": the conversation has no message of the assistant to learn from");
    return std::move(found_);
  }

 private:
  // Of the conversation's first messages.
  Tokens tokens_of(size_t messages, bool add_generation_prompt) const {
    Chat begin = chat_;
    begin.messages.erase(begin.messages.begin() + static_cast<std::ptrdiff_t>(messages),
                         begin.messages.end());
    begin.add_generation_prompt = add_generation_prompt;
    return tokenizer_.encode(template_.render(begin, place_).text);
  }

  Span span_of_message(size_t i) const {
    const std::string name = place_ + ": message " + std::to_string(i + 1);
    TLT_CHECK_INPUT(i > 0, name, ": a conversation to learn from cannot begin with the assistant");
    const Tokens before = tokens_of(i, /*add_generation_prompt=*/true);
    const Tokens through = i + 1 == chat_.messages.size()
                               ? found_.tokens
                               : tokens_of(i + 1, /*add_generation_prompt=*/false);
    TLT_CHECK_INPUT(begins_with(through, before) && begins_with(found_.tokens, through), name,
                    ": the chat template writes a conversation otherwise once more follows, so the "
                    "assistant's tokens are not known; give a template with {% generation %} "
                    "blocks, or rows of prompt and response");
    return {std::ssize(before), std::ssize(through)};
  }

  // Cut behind the last end-of-sequence token. The first token of all is never predicted.
  void add(Span span) {
    const auto& eos = tokenizer_.roles().eos;
    const auto is_eos = [&](int64_t at) {
      return std::ranges::find(eos, found_.tokens[static_cast<size_t>(at)]) != eos.end();
    };
    span.first = std::max<int64_t>(span.first, 1);
    for (int64_t end = span.second; end > span.first; --end) {
      if (!is_eos(end - 1)) continue;
      span.second = end;
      break;
    }
    if (span.first < span.second) found_.spans.push_back(span);
  }

  const ChatTemplate& template_;
  const Tokenizer& tokenizer_;
  const Chat& chat_;
  const std::string& place_;
  ChatTokens found_;
};

}  // namespace

ChatTokens chat_tokens(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                       const Chat& chat, const std::string& place) {
  return SpanFinder(chat_template, tokenizer, chat, place).find();
}

}  // namespace tlt::data
