// SuffixIndex: finds earlier occurrences of the last tokens of a text, in the texts of one prompt.
// A text is a token sequence: the prompt, a running response, or one of an earlier epoch.
//
// Every position is entered under its last 1, 4 and 12 tokens (with min_match 1) in a hash table of
// the newest such position; from there a chain leads to the older ones. So appending costs three
// table look-ups for all match lengths (45-70 ns and 49 bytes per token, measured with 8 responses
// of 1,000 tokens), and the longest matches are found first, by walking at most a few chains of
// kMostFound positions. A suffix tree with counts would have up to two nodes per token, 100 bytes
// and more, and would count along up to kLongestMatch active suffixes for each token. Counts are
// not needed: kMostFound occurrences tell how frequent each continuation is, and unlike counts they
// keep the length of each match and the text it comes from (drafter/suffix/suffix_tree.h).
//
// Owns       a copy of the texts.
// Threading  engine thread only; no locks.
//
//   SuffixIndex index(/*min_match=*/1);
//   const int32_t text = index.add_text(prompt, /*weight=*/1);
//   index.append(text, token);
//   index.find(text, &occurrences);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tlt::drafter {

// An earlier occurrence of the suffix, and its continuation.
struct Occurrence {
  const int32_t* next = nullptr;  // valid until the index changes
  const int32_t* end = nullptr;
  // Within the own text the continuation reaches the text's end and then repeats with this period,
  // in tokens before `end`; 0 in other texts.
  int32_t period = 0;
  int32_t length = 0;  // of the match before `next`, at most kLongestMatch
  float weight = 1;    // weight of its text

  bool at_end() const { return next == end; }
  void advance() {
    if (++next == end) next -= period;
  }
};

class SuffixIndex {
 public:
  static constexpr int32_t kLongestMatch = 32;
  static constexpr size_t kMostFound = 64;

  // Matches shorter than `min_match` tokens are not found.
  explicit SuffixIndex(int64_t min_match);

  // Removes all texts; keeps the memory.
  void clear();

  // Adds an empty text that follows `before`, whose last kLongestMatch tokens can be matched.
  // kNoText when the index is full (4095 texts). `weight` is returned by find().
  static constexpr int32_t kNoText = -1;
  int32_t add_text(std::span<const int32_t> before, float weight);

  // Appends a token. Tokens after a text's first million are not indexed.
  void append(int32_t text, int32_t token);

  // The appended tokens.
  std::span<const int32_t> tokens(int32_t text) const;

  // Finds earlier occurrences of the text's end that have a continuation: at most kMostFound,
  // longer matches first (12 tokens or more, 4 or more, the rest), of these the newest.
  void find(int32_t text, std::vector<Occurrence>* found) const { find(text, {}, found); }
  // Finds occurrences of the text followed by `path`.
  void find(int32_t text, std::span<const int32_t> path, std::vector<Occurrence>* found) const;

  int64_t memory_bytes() const {
    return memory_bytes_ + static_cast<int64_t>(texts_.capacity() * sizeof(Text));
  }

 private:
  using Position = uint32_t;  // text << 20 | offset
  static constexpr Position kNowhere = UINT32_MAX;
  static constexpr size_t kLevels = 3;

  struct Text {
    std::vector<int32_t> tokens;                       // begins with those of `before`
    std::vector<std::array<Position, kLevels>> older;  // [token, level]: next position of the chain
    size_t before = 0;
    float weight = 1;
  };
  struct Head {  // a slot of the hash table, with open addressing: the head of a chain
    uint32_t key = 0;
    Position newest = kNowhere;
  };

  void push(Text& text, int32_t token);
  void enter(int32_t text);
  std::array<uint32_t, kLevels> keys(std::span<const int32_t> tokens) const;
  Head& head_of(uint32_t key);
  Position newest(uint32_t key) const;
  void grow_heads();
  // A search for earlier occurrences of the end of `tokens`; those within `text` are periodic.
  struct Query {
    std::span<const int32_t> tokens;
    const Text* text = nullptr;
  };
  bool find_at(const Query& query, size_t level, uint32_t key,
               std::vector<Occurrence>* found) const;

  std::array<size_t, kLevels> match_;  // match length of each level, ascending
  std::vector<Text> texts_;            // the first used_ are in use
  size_t used_ = 0;
  std::vector<Head> heads_;  // size: a power of two
  size_t heads_used_ = 0;
  int64_t memory_bytes_ = 0;
};

}  // namespace tlt::drafter
