// AddedTokens: finds the tokens that stand outside the merges ("<|im_end|>", "<think>") in a text.
// Leftmost first, then longest, as the Hugging Face library does; `lstrip` and `rstrip` take the
// white space around a token with it, `single_word` asks that no word character touches it.
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

namespace tlt::data {

struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool is_single_word = false;
  bool strips_left = false;
  bool strips_right = false;
  bool is_normalized = false;  // found in the normalized text instead of the raw one
  bool is_special = false;     // left out by decode(…, skip_special)
};

class AddedTokens {
 public:
  static constexpr int32_t kText = -1;
  struct Piece {
    std::string_view text;
    int32_t id;  // kText: the stretch is not a token
  };

  // An empty text is never found.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool is_empty() const { return tokens_.empty(); }

  // Replaces `pieces` by the text cut at its tokens.
  void split(std::string_view text, std::vector<Piece>& pieces) const;

 private:
  // Index of the longest token that the text begins with, or -1.
  int32_t longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_token_{};
  std::unordered_map<uint32_t, uint32_t> trie_;  // node * 256 + byte -> node; node 0 is the root
  std::vector<int32_t> token_at_;                // node -> token that ends here, or -1
};

}  // namespace tlt::data
