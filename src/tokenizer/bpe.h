// Bpe: byte-pair encoding of one word. A word starts as bytes (or characters, without a byte-level
// pre-tokenizer); the adjacent pair with the best merge, leftmost first, becomes one token, until
// no pair has a merge.
//
// Owns       the strings of the vocabulary and the merge table.
// Not here   token strings by id (tokenizer.h); splitting a text into words (pre_tokenizer.h).
// Threading  constant after construction. WordCache: one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tlt::tokenizer {

class Bpe {
 public:
  struct Merge {
    int32_t left, right, result;
  };
  struct Options {
    bool is_byte_level = true;
    bool ignores_merges = false;  // a word that is a token is encoded as that token, without merges
    bool falls_back = false;  // a character that is no token is encoded by its bytes "<0xE6>" …
    int32_t unknown = -1;     // … or, if one of those is missing, as this token; -1: left out
    bool fuses_unknown = false;  // consecutive unknown characters are one token
  };

  // `vocabulary`: tokens by string; merges best first.
  Bpe(std::unordered_map<std::string, int32_t> vocabulary, std::span<const Merge> merges,
      Options options);

  // Length of the first part of a word that can be encoded separately: up to the next "▁" that no
  // merge joins to what precedes it. SentencePiece's vocabularies have no other words, so a whole
  // text is one word. REQUIRES: not empty.
  size_t first_part(std::string_view word) const;

  // Appends the tokens of a word, or of such a part.
  void append(std::string_view word, std::vector<int32_t>& tokens) const;

 private:
  struct Pair {
    uint64_t key;  // left << 32 | right
    int32_t rank;
    int32_t result;
  };
  static constexpr int32_t kNoRank = INT32_MAX;
  static constexpr uint64_t kNoPair = UINT64_MAX;

  const Pair& find(int32_t left, int32_t right) const;
  void append_units(std::string_view word, std::vector<int32_t>& tokens) const;
  bool try_append_bytes(std::string_view character, std::vector<int32_t>& tokens) const;
  void find_cuts(std::span<const Merge> merges);
  size_t merge_short(std::span<int32_t> symbols) const;
  size_t merge_long(std::span<int32_t> symbols) const;

  std::unordered_map<std::string, int32_t> vocabulary_;
  std::array<int32_t, 256> byte_ids_;      // by byte (byte-level) or ASCII character; -1: none
  std::array<int32_t, 256> fallback_ids_;  // by byte, of "<0x00>" to "<0xFF>"; -1: none
  bool cuts_words_ = false;                // in first_part(): before a "▁" …
  std::array<bool, 256> joins_marks_{};    // … except after a character that ends in this byte
  std::vector<Pair> pairs_;                // open addressing, at most half full
  int shift_ = 0;                          // hash bits to drop
  Options options_;
};

// The tokens of recently encoded short words: a table of fixed size in which a new word replaces
// the one in its slot.
class WordCache {
 public:
  WordCache() : entries_(kEntries) {}

  // Appends the tokens of the word if it is in the cache. REQUIRES: not empty.
  bool try_append(std::string_view word, std::vector<int32_t>& tokens) const;

  // Stores the word if it is short enough. REQUIRES: not empty.
  void put(std::string_view word, std::span<const int32_t> tokens);

 private:
  static constexpr size_t kEntries = 1 << 14;
  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxTokens = 8;
  struct alignas(64) Entry {  // one cache line
    uint8_t bytes = 0;        // 0: free
    uint8_t count = 0;
    char word[kMaxBytes];
    int32_t tokens[kMaxTokens];
  };
  static size_t slot(std::string_view word);

  std::vector<Entry> entries_;
};

}  // namespace tlt::tokenizer
