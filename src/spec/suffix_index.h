// SuffixIndex: where the last tokens of a text have occurred before, in the texts of one prompt:
// the prompt itself, its responses now and of earlier epochs.
//
// Every position is entered under its last 1, 4 and 12 tokens (with min_match 1) in a hash table of
// the newest such position; from there a chain leads to the older ones. So appending costs three
// table look-ups whatever the match lengths (45-70 ns a token and 49 bytes, measured with 8
// responses of 1,000 tokens), and the longest matches come first, by walking at most a few chains
// of kMostFound positions. A suffix tree with counts would have up to two nodes a token, 100 bytes
// and more, and count along up to kLongestMatch active suffixes for each. Counts are not needed:
// kMostFound occurrences say how often each continuation was taken, and unlike counts they still
// know how long each one's match is and which text it comes from (spec/suffix_tree.h).
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

namespace tlt::spec {

// A place where a text stood that ends like ours, and how it went on from there.
struct Occurrence {
  const int32_t* next = nullptr;  // valid until the index changes
  const int32_t* end = nullptr;
  // In the own text the continuation runs into the text's end and goes on as it repeats itself: so
  // many tokens back from `end`. 0 elsewhere.
  int32_t period = 0;
  int32_t length = 0;  // equal tokens before `next`, at most kLongestMatch
  float weight = 1;    // of its text

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

  // Forgets the texts, keeps the memory.
  void clear();

  // A text that follows `before`, of which the last kLongestMatch tokens count as its beginning;
  // kNoText when there is no room for another (after 4095). `weight` is handed on by find().
  static constexpr int32_t kNoText = -1;
  int32_t add_text(std::span<const int32_t> before, float weight);

  // Tokens behind a text's first million are not indexed.
  void append(int32_t text, int32_t token);

  // What was appended.
  std::span<const int32_t> tokens(int32_t text) const;

  // Where the end of the text occurred before with something after it: at most kMostFound, longer
  // matches first (12 tokens or more, 4 or more, the rest), of these the newest.
  void find(int32_t text, std::vector<Occurrence>* found) const { find(text, {}, found); }
  // The same if the text went on with `path`.
  void find(int32_t text, std::span<const int32_t> path, std::vector<Occurrence>* found) const;

  int64_t memory_bytes() const {
    return memory_bytes_ + static_cast<int64_t>(texts_.capacity() * sizeof(Text));
  }

 private:
  using Position = uint32_t;  // text << 20 | offset
  static constexpr Position kNowhere = UINT32_MAX;
  static constexpr size_t kLevels = 3;

  struct Text {
    std::vector<int32_t> tokens;                       // first those before it
    std::vector<std::array<Position, kLevels>> older;  // by token: the next of each chain
    size_t before = 0;
    float weight = 1;
  };
  struct Head {  // a slot of the hash table, open addressing
    uint32_t key = 0;
    Position newest = kNowhere;
  };

  void push(Text& text, int32_t token);
  void enter(int32_t text);
  std::array<uint32_t, kLevels> keys(std::span<const int32_t> tokens) const;
  Head& head_of(uint32_t key);
  Position newest(uint32_t key) const;
  void grow_heads();
  // What ends like `tokens`; those of `text` repeat themselves.
  struct Query {
    std::span<const int32_t> tokens;
    const Text* text = nullptr;
  };
  bool find_at(const Query& query, size_t level, uint32_t key,
               std::vector<Occurrence>* found) const;

  std::array<size_t, kLevels> match_;  // tokens of each level, rising
  std::vector<Text> texts_;            // the first used_ are in use
  size_t used_ = 0;
  std::vector<Head> heads_;  // a power of two
  size_t heads_used_ = 0;
  int64_t memory_bytes_ = 0;
};

}  // namespace tlt::spec
