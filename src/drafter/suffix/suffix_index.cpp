// SPDX-License-Identifier: Apache-2.0
#include "drafter/suffix/suffix_index.h"

#include <algorithm>

#include "base/check.h"

namespace tlt::drafter {
namespace {

constexpr uint32_t kOffsetBits = 20;
constexpr size_t kLongestText = size_t{1} << kOffsetBits;
constexpr size_t kMostTexts = (size_t{1} << (32 - kOffsetBits)) - 1;  // the last id has kNowhere
constexpr size_t kFirstHeads = 1024;

// The number of equal tokens that end at `a` and `b`, up to `limit`.
int32_t common_end(const int32_t* a, const int32_t* b, size_t limit) {
  size_t length = 0;
  while (length < limit && *a-- == *b--) ++length;
  return static_cast<int32_t>(length);
}

}  // namespace

SuffixIndex::SuffixIndex(int64_t min_match) {
  TLT_CHECK(min_match >= 1 && min_match + 11 <= kLongestMatch, "min_match ", min_match);
  const auto least = static_cast<size_t>(min_match);
  match_ = {least, least + 3, least + 11};
  heads_.resize(kFirstHeads);
  memory_bytes_ = static_cast<int64_t>(sizeof(*this) + heads_.size() * sizeof(Head));
}

void SuffixIndex::clear() {
  used_ = 0;
  heads_used_ = 0;
  std::ranges::fill(heads_, Head());
}

int32_t SuffixIndex::add_text(std::span<const int32_t> before, float weight) {
  if (used_ == kMostTexts) return kNoText;
  if (used_ == texts_.size()) texts_.emplace_back();
  Text& text = texts_[used_];
  text.tokens.clear();
  text.older.clear();
  text.weight = weight;
  text.before = std::min<size_t>(before.size(), kLongestMatch);
  for (const int32_t token : before.last(text.before)) push(text, token);
  const auto id = static_cast<int32_t>(used_++);
  if (text.before > 0) enter(id);  // the context of its first token; the rest is in the prompt
  return id;
}

void SuffixIndex::append(int32_t text, int32_t token) {
  push(texts_[static_cast<size_t>(text)], token);
  enter(text);
}

void SuffixIndex::push(Text& text, int32_t token) {
  if (text.tokens.size() == text.tokens.capacity()) {
    const auto bytes = [&] {
      return text.tokens.capacity() * sizeof(int32_t) +
             text.older.capacity() * sizeof(text.older[0]);
    };
    const size_t before = bytes();
    text.tokens.reserve(std::max<size_t>(2 * text.tokens.size(), 128));
    text.older.reserve(text.tokens.capacity());
    memory_bytes_ += static_cast<int64_t>(bytes() - before);
  }
  text.tokens.push_back(token);
  text.older.push_back({kNowhere, kNowhere, kNowhere});
}

std::span<const int32_t> SuffixIndex::tokens(int32_t text) const {
  const Text& from = texts_[static_cast<size_t>(text)];
  return std::span(from.tokens).subspan(from.before);
}

// Hashes of the last match_[level] tokens; only levels that are not longer than `tokens`.
std::array<uint32_t, SuffixIndex::kLevels> SuffixIndex::keys(
    std::span<const int32_t> tokens) const {
  std::array<uint32_t, kLevels> keys{};
  uint64_t hash = 0x9e3779b97f4a7c15;
  size_t taken = 0;
  for (size_t level = 0; level < kLevels && match_[level] <= tokens.size(); ++level) {
    for (; taken < match_[level]; ++taken) {
      hash ^= static_cast<uint32_t>(tokens[tokens.size() - 1 - taken]);
      hash *= 0xff51afd7ed558ccd;
      hash ^= hash >> 32;
    }
    keys[level] = static_cast<uint32_t>((hash + level) * 0xc4ceb9fe1a85ec53 >> 32);
  }
  return keys;
}

// Puts the text's last position at the front of its chains.
void SuffixIndex::enter(int32_t id) {
  Text& text = texts_[static_cast<size_t>(id)];
  const size_t size = text.tokens.size();
  if (size > kLongestText) return;
  const auto position = static_cast<Position>(static_cast<size_t>(id) << kOffsetBits | (size - 1));
  const std::array<uint32_t, kLevels> key = keys(text.tokens);
  for (size_t level = 0; level < kLevels && match_[level] <= size; ++level) {
    Head& head = head_of(key[level]);
    text.older.back()[level] = head.newest;
    head.newest = position;
  }
}

SuffixIndex::Head& SuffixIndex::head_of(uint32_t key) {
  for (size_t slot = key;; ++slot) {
    Head& head = heads_[slot & (heads_.size() - 1)];
    if (head.newest == kNowhere) {
      if (3 * heads_used_ >= 2 * heads_.size()) {
        grow_heads();
        return head_of(key);
      }
      ++heads_used_;
      head.key = key;
      return head;
    }
    if (head.key == key) return head;
  }
}

void SuffixIndex::grow_heads() {
  std::vector<Head> old(heads_.size() * 2);
  old.swap(heads_);
  memory_bytes_ += static_cast<int64_t>(old.size() * sizeof(Head));
  for (const Head& head : old) {
    if (head.newest == kNowhere) continue;
    size_t slot = head.key;
    while (heads_[slot & (heads_.size() - 1)].newest != kNowhere) ++slot;
    heads_[slot & (heads_.size() - 1)] = head;
  }
}

SuffixIndex::Position SuffixIndex::newest(uint32_t key) const {
  for (size_t slot = key;; ++slot) {
    const Head& head = heads_[slot & (heads_.size() - 1)];
    if (head.key == key || head.newest == kNowhere) return head.newest;
  }
}

void SuffixIndex::find(int32_t id, std::span<const int32_t> path,
                       std::vector<Occurrence>* found) const {
  found->clear();
  const Text& text = texts_[static_cast<size_t>(id)];
  if (text.tokens.size() > kLongestText) return;
  std::array<int32_t, kLongestMatch> tail;  // with a path: the path and as much text as fits
  Query query{text.tokens, &text};
  if (!path.empty()) {
    path = path.last(std::min(path.size(), tail.size()));
    const std::span<const int32_t> before =
        query.tokens.last(std::min(query.tokens.size(), tail.size() - path.size()));
    std::ranges::copy(path, std::ranges::copy(before, tail.begin()).out);
    query = {std::span(tail).first(before.size() + path.size()), nullptr};
  }
  if (query.tokens.empty()) return;
  const std::array<uint32_t, kLevels> key = keys(query.tokens);
  for (size_t level = kLevels; level-- > 0;)
    if (match_[level] <= query.tokens.size() && !find_at(query, level, key[level], found)) return;
}

// Finds the matches that are too short for the next level; false when `found` is full.
bool SuffixIndex::find_at(const Query& query, size_t level, uint32_t key,
                          std::vector<Occurrence>* found) const {
  const auto least = static_cast<int32_t>(match_[level]);
  const int32_t most =
      level + 1 < kLevels ? static_cast<int32_t>(match_[level + 1]) - 1 : kLongestMatch;
  const size_t size = query.tokens.size();
  const int32_t* const last = &query.tokens.back();
  Position older = kNowhere;
  for (Position at = newest(key); at != kNowhere; at = older) {
    const Text& other = texts_[at >> kOffsetBits];
    const size_t offset = at & (kLongestText - 1);
    older = other.older[offset][level];
    if (offset + 1 == other.tokens.size()) continue;  // no continuation
    const size_t common = std::min({size, offset + 1, size_t{kLongestMatch}});
    const int32_t length = common_end(last, other.tokens.data() + offset, common);
    if (length < least || length > most) continue;  // shorter: a hash collision
    if (found->size() == kMostFound) return false;
    found->push_back({.next = other.tokens.data() + offset + 1,
                      .end = other.tokens.data() + other.tokens.size(),
                      .period = &other == query.text ? static_cast<int32_t>(size - 1 - offset) : 0,
                      .length = length,
                      .weight = other.weight});
  }
  return true;
}

}  // namespace tlt::drafter
