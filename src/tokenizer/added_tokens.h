// AddedTokens: finds the added tokens ("<|im_end|>", "<think>") in a text, which are not made by
// merges. Matching is leftmost-longest, as in the Hugging Face library; `lstrip` and `rstrip`
// include the white space around a token, `single_word` requires that no word character is next to
// it.
//
// Tokens like "aa…ab" take n^2 steps on a text of a's, as in that library; split() counts the steps
// and refuses such a text.
//
// Threading  constant after construction.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tlt::tokenizer {

struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool is_single_word = false;
  bool strips_left = false;
  bool strips_right = false;
  bool is_normalized = false;  // found in the normalized text instead of the raw text
  bool is_special = false;     // left out by decode(…, skip_special)
};

class AddedTokens {
 public:
  static constexpr int32_t kText = -1;
  struct Piece {
    std::string_view text;
    int32_t id;  // kText: the piece is not a token
  };

  // Tokens with an empty string are never found.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool is_empty() const { return tokens_.empty(); }

  // Replaces `pieces` by the pieces of the text: added tokens and the text between them.
  // InputError: it takes too many steps.
  void split(std::string_view text, std::vector<Piece>& pieces) const;

 private:
  // Index of the longest token that the text starts with, or -1. Subtracts the bytes that it read.
  int32_t longest_at(std::string_view text, int64_t& steps) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_token_{};
  std::unordered_map<uint32_t, uint32_t> trie_;  // node * 256 + byte -> node; node 0 is the root
  std::vector<int32_t> token_at_;                // node -> token that ends here, or -1
};

}  // namespace tlt::tokenizer
