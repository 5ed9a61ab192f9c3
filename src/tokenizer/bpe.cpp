// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <queue>
#include <tuple>

#include "base/check.h"
#include "base/utf8.h"

namespace tlt::tokenizer {
namespace {

constexpr uint64_t kHashMultiplier = 0x9E3779B97F4A7C15;
constexpr const char* kMark = "\u2581";  // SentencePiece's space
constexpr size_t kShortWord = 40;        // symbols; a scan is faster up to here

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

Bpe::Bpe(std::unordered_map<std::string, int32_t> vocabulary, std::span<const Merge> merges,
         Options options)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  const int limit = options_.is_byte_level ? 256 : 128;
  byte_ids_.fill(-1);
  for (int byte = 0; byte < limit; ++byte) {
    const auto found = vocabulary_.find(std::string(1, static_cast<char>(byte)));
    if (found != vocabulary_.end()) byte_ids_[byte] = found->second;
  }
  const int bits = std::bit_width(2 * merges.size() + 1);
  shift_ = 64 - bits;
  pairs_.assign(size_t{1} << bits, {kNoPair, kNoRank, -1});
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const uint64_t key = key_of(merge.left, merge.right);
    size_t slot = key * kHashMultiplier >> shift_;
    while (pairs_[slot].key != kNoPair && pairs_[slot].key != key)
      slot = (slot + 1) & (pairs_.size() - 1);
    pairs_[slot] = {key, static_cast<int32_t>(rank),
                    merge.result};  // of two equal pairs the later merge is kept
  }
  fallback_ids_.fill(-1);
  for (int byte = 0; byte < 256 && options_.falls_back; ++byte) {
    std::array<char, 8> spelling{};
    std::snprintf(spelling.data(), spelling.size(), "<0x%02X>", static_cast<unsigned>(byte));
    const auto found = vocabulary_.find(spelling.data());
    if (found != vocabulary_.end()) fallback_ids_[byte] = found->second;
  }
  find_cuts(merges);
}

// A word can be cut before a "▁" unless a merge joins the "▁" to what precedes it. Such a merge has
// a right side that starts with "▁"; the last bytes of the left sides are those after which the
// word cannot be cut. This requires that "▁" itself is a token: it ends a run of unknown
// characters.
void Bpe::find_cuts(std::span<const Merge> merges) {
  if (options_.is_byte_level || options_.ignores_merges || !vocabulary_.contains(kMark)) return;
  std::unordered_map<int32_t, std::string_view> texts;
  for (const auto& [text, id] : vocabulary_) texts.emplace(id, text);
  for (const Merge& merge : merges) {
    if (!texts.at(merge.right).starts_with(kMark)) continue;
    const std::string_view left = texts.at(merge.left);
    const bool may_be_bytes = options_.falls_back && left.ends_with('>');
    const bool may_be_unknown = options_.unknown >= 0 && left.ends_with(texts.at(options_.unknown));
    if (left.empty() || may_be_bytes || may_be_unknown) return;  // not as in the word
    joins_marks_[static_cast<uint8_t>(left.back())] = true;
  }
  cuts_words_ = true;
}

size_t Bpe::first_part(std::string_view word) const {
  if (!cuts_words_) return word.size();
  size_t at = word.find(kMark, 1);
  while (at != word.npos && joins_marks_[static_cast<uint8_t>(word[at - 1])])
    at = word.find(kMark, at + 1);
  return std::min(at, word.size());
}

const Bpe::Pair& Bpe::find(int32_t left, int32_t right) const {
  const uint64_t key = key_of(left, right);
  size_t slot = key * kHashMultiplier >> shift_;
  while (pairs_[slot].key != key && pairs_[slot].key != kNoPair)
    slot = (slot + 1) & (pairs_.size() - 1);
  return pairs_[slot];
}

void Bpe::append(std::string_view word, std::vector<int32_t>& tokens) const {
  if (options_.ignores_merges) {
    const auto found = vocabulary_.find(std::string(word));
    if (found != vocabulary_.end()) {
      tokens.push_back(found->second);
      return;
    }
  }
  const size_t begin = tokens.size();
  append_units(word, tokens);
  const std::span<int32_t> symbols = std::span(tokens).subspan(begin);
  tokens.resize(begin +
                (symbols.size() <= kShortWord ? merge_short(symbols) : merge_long(symbols)));
}

bool Bpe::try_append_bytes(std::string_view character, std::vector<int32_t>& tokens) const {
  const auto id_of = [&](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
  if (!std::ranges::all_of(character, [&](char byte) { return id_of(byte) >= 0; })) return false;
  for (const char byte : character) tokens.push_back(id_of(byte));
  return true;
}

// The token of an unknown character is appended when the next known character comes, as in the
// Hugging Face library: after the bytes of the characters in between.
void Bpe::append_units(std::string_view word, std::vector<int32_t>& tokens) const {
  bool is_waiting = false;
  while (!word.empty()) {
    const uint8_t first = static_cast<uint8_t>(word[0]);
    const bool is_byte = options_.is_byte_level || first < 0x80;
    const std::string_view unit = word.substr(0, is_byte ? 1 : next_utf8(word).bytes);
    word.remove_prefix(unit.size());
    int32_t id = byte_ids_[first];
    if (!is_byte) {
      const auto found = vocabulary_.find(std::string(unit));
      id = found == vocabulary_.end() ? -1 : found->second;
    }
    if (id < 0 && try_append_bytes(unit, tokens)) continue;
    const bool ends_unknown = is_waiting && (id >= 0 || !options_.fuses_unknown);
    if (ends_unknown) tokens.push_back(options_.unknown);
    if (id >= 0) tokens.push_back(id);
    is_waiting = id < 0 && options_.unknown >= 0;
  }
  if (is_waiting) tokens.push_back(options_.unknown);
}

// Keeps the merge of each symbol with its right neighbour and scans for the best one.
size_t Bpe::merge_short(std::span<int32_t> symbols) const {
  std::array<const Pair*, kShortWord> merges;
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = &find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i]->rank < merges[best]->rank) best = i;
    }
    if (merges[best]->rank == kNoRank) break;
    symbols[best] = merges[best]->result;
    --count;
    std::copy(symbols.begin() + best + 2, symbols.begin() + count + 1, symbols.begin() + best + 1);
    if (best + 1 < count) std::copy(&merges[best + 2], &merges[count], &merges[best + 1]);
    if (best + 1 < count) merges[best] = &find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = &find(symbols[best - 1], symbols[best]);
  }
  return count;
}

// Uses a queue of candidate merges over a linked list of symbols: O(n log n).
size_t Bpe::merge_long(std::span<int32_t> symbols) const {
  struct Candidate {
    int32_t rank, slot, left, right, result;
    bool operator>(const Candidate& other) const {
      return std::tie(rank, slot) > std::tie(other.rank, other.slot);
    }
  };
  TLT_CHECK_INPUT(symbols.size() < INT32_MAX, "a word of ", symbols.size(),
                  " characters is too long to encode");
  const auto size = static_cast<int32_t>(symbols.size());
  std::vector<int32_t> next(symbols.size()), previous(symbols.size());
  for (int32_t i = 0; i < size; ++i) next[i] = i + 1, previous[i] = i - 1;

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto offer = [&](int32_t slot) {
    if (slot < 0 || next[slot] == size) return;
    const int32_t left = symbols[slot], right = symbols[next[slot]];
    const Pair& pair = find(left, right);
    if (pair.rank != kNoRank) candidates.push({pair.rank, slot, left, right, pair.result});
  };
  for (int32_t i = 0; i < size; ++i) offer(i);

  constexpr int32_t kGone = -1;
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    const int32_t right = next[best.slot];
    const bool is_stale =
        symbols[best.slot] != best.left || right == size || symbols[right] != best.right;
    if (is_stale) continue;
    symbols[best.slot] = best.result;
    symbols[right] = kGone;
    next[best.slot] = next[right];
    if (next[right] != size) previous[next[right]] = best.slot;
    offer(best.slot);
    offer(previous[best.slot]);
  }
  return std::remove(symbols.begin(), symbols.end(), kGone) - symbols.begin();
}

size_t WordCache::slot(std::string_view word) {
  uint64_t hash = word.size();
  while (!word.empty()) {
    uint64_t part = 0;
    const size_t bytes = std::min<size_t>(8, word.size());
    std::memcpy(&part, word.data(), bytes);
    hash = (hash ^ part) * kHashMultiplier;
    hash ^= hash >> 32;
    word.remove_prefix(bytes);
  }
  return hash & (kEntries - 1);
}

bool WordCache::try_append(std::string_view word, std::vector<int32_t>& tokens) const {
  if (word.size() > kMaxBytes) return false;
  const Entry& entry = entries_[slot(word)];
  if (entry.bytes != word.size() || std::memcmp(entry.word, word.data(), word.size()) != 0)
    return false;
  tokens.insert(tokens.end(), entry.tokens, entry.tokens + entry.count);
  return true;
}

void WordCache::put(std::string_view word, std::span<const int32_t> tokens) {
  if (word.size() > kMaxBytes || tokens.size() > kMaxTokens) return;
  Entry& entry = entries_[slot(word)];
  entry.bytes = static_cast<uint8_t>(word.size());
  entry.count = static_cast<uint8_t>(tokens.size());
  std::copy(word.begin(), word.end(), entry.word);
  std::copy(tokens.begin(), tokens.end(), entry.tokens);
}

}  // namespace tlt::tokenizer
