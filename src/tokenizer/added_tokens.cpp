// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/regex.h"

namespace tlt::tokenizer {
namespace {

constexpr size_t kMaxNodes = 1 << 22;  // about 50 bytes of memory each

// Steps of split(): bytes read in search of a token, or next to one.
constexpr int64_t kTokenStepsPerByte = 32, kLeastTokenSteps = 4096;

// The last character of a string that is not empty.
std::string_view last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

bool is_space(std::string_view character) {
  static constexpr std::array<char32_t, 17> kOther = {
      0x85,   0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005,
      0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F};
  const char32_t c = code_point(character);
  return c == ' ' || (c >= '\t' && c <= '\r') || c == 0x205F || c == 0x3000 ||
         std::ranges::find(kOther, c) != kOther.end();
}

bool is_word(std::string_view character) {
  thread_local Regex word =
      Regex::from_pcre2(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]|)" +
                        to_pcre2(R"(\p{L})", /*with_newer=*/true));
  bool found = false;
  RegexBudget budget(character);
  word.for_each_match(character, budget, [&](size_t, size_t) { found = true; });
  return found;
}

bool touches_word(std::string_view before, std::string_view after) {
  return (!before.empty() && is_word(last_character(before))) ||
         (!after.empty() && is_word(after.substr(0, next_utf8(after).bytes)));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), token_at_(1, -1) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.text.empty(); });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    begins_token_[static_cast<uint8_t>(tokens_[i].text[0])] = true;
    uint32_t node = 0;
    for (const char byte : tokens_[i].text) {
      const auto next = static_cast<uint32_t>(token_at_.size());
      const auto [edge, is_new] = trie_.try_emplace(node * 256 + static_cast<uint8_t>(byte), next);
      if (is_new) token_at_.push_back(-1);
      node = edge->second;
    }
    TLT_CHECK_INPUT(token_at_.size() < kMaxNodes, "added_tokens: more than ", kMaxNodes,
                    " bytes of text");
    if (token_at_[node] < 0) token_at_[node] = static_cast<int32_t>(i);
  }
}

int32_t AddedTokens::longest_at(std::string_view text, int64_t& steps) const {
  int32_t longest = -1;
  uint32_t node = 0;
  for (const char byte : text) {
    --steps;
    const auto edge = trie_.find(node * 256 + static_cast<uint8_t>(byte));
    if (edge == trie_.end()) break;
    node = edge->second;
    if (token_at_[node] >= 0) longest = token_at_[node];
  }
  return longest;
}

void AddedTokens::split(std::string_view text, std::vector<Piece>& pieces) const {
  pieces.clear();
  size_t done = 0;  // end of the part of the text that is in the pieces
  int64_t steps = kLeastTokenSteps + kTokenStepsPerByte * std::ssize(text);
  for (size_t at = 0; at < text.size();) {
    const int32_t found =
        begins_token_[static_cast<uint8_t>(text[at])] ? longest_at(text.substr(at), steps) : -1;
    TLT_CHECK_INPUT(steps >= 0, "the added tokens of tokenizer.json take more than ",
                    kTokenStepsPerByte, " steps for each byte of the text; use the tokenizer.json ",
                    "that the model was published with");
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found];
    size_t begin = at, end = at + token.text.size();
    at = end;
    if (token.is_single_word && touches_word(text.substr(0, begin), text.substr(end))) continue;
    while (token.strips_left && begin > done && is_space(last_character(text.substr(0, begin)))) {
      begin -= last_character(text.substr(0, begin)).size();
    }
    while (token.strips_right && end < text.size()) {
      const std::string_view next = text.substr(end, next_utf8(text.substr(end)).bytes);
      if (!is_space(next)) break;
      end += next.size();
      --steps;
    }
    if (done < begin) pieces.push_back({text.substr(done, begin - done), kText});
    pieces.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done), kText});
}

}  // namespace tlt::tokenizer
