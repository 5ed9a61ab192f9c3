// SPDX-License-Identifier: Apache-2.0
#include "spec/suffix_drafter.h"

#include <algorithm>

#include "base/check.h"

namespace tlt::spec {
namespace {

constexpr float kPresentWeight = 1;
constexpr float kHistoryWeight = 0.5f;
constexpr int64_t kLongestMinMatch = 16;
constexpr int64_t kMostIndexBytes = 112;  // a token, right after everything has doubled

}  // namespace

// Written so that NaN is refused too.
void SuffixOptions::check() const {
  TLT_CHECK_INPUT(min_match >= 1 && min_match <= kLongestMinMatch, "min_match is ", min_match,
                  "; give a number from 1 to ", kLongestMinMatch);
  TLT_CHECK_INPUT(min_probability > 0 && min_probability < 1, "min_probability is ",
                  min_probability, "; give a number between 0 and 1 such as 0.05");
  TLT_CHECK_INPUT(history >= 0 && history <= INT32_MAX, "history is ", history,
                  "; give 0 (none) or a number of responses such as 16");
  TLT_CHECK_INPUT(memory_bytes >= 0, "memory_bytes is ", memory_bytes,
                  "; give 0 (no history) or a number of bytes such as 268435456");
}

SuffixDrafter::SuffixDrafter(const SuffixOptions& options)
    : options_(options), history_(options.history) {
  options_.check();
}

void SuffixDrafter::begin(SequenceId id, std::span<const int32_t> prompt) {
  const auto [sequence, is_new] = running_.try_emplace(id);
  TLT_CHECK(is_new, "sequence ", id.sample, " of prompt ", id.prompt_id, " began twice");
  Prompt& siblings = prompt_of(id.prompt_id, prompt);
  ++siblings.running;
  sequence->second = {.prompt = &siblings, .text = siblings.index.add_text(prompt, kPresentWeight)};
  keep_within_memory();
}

// With what is known of it already, oldest first.
SuffixDrafter::Prompt& SuffixDrafter::prompt_of(uint32_t prompt_id,
                                                std::span<const int32_t> tokens) {
  if (const auto known = prompts_.find(prompt_id); known != prompts_.end()) return *known->second;
  std::unique_ptr<Prompt> prompt;
  if (spare_.empty()) {
    prompt = std::make_unique<Prompt>(options_.min_match);
  } else {
    prompt = std::move(spare_.back());
    spare_.pop_back();
  }
  const auto add = [&](std::span<const int32_t> before, std::span<const int32_t> text,
                       float weight) {
    const int32_t added = prompt->index.add_text(before, weight);
    if (added == SuffixIndex::kNoText) return;
    for (const int32_t token : text) prompt->index.append(added, token);
  };
  for (const std::vector<int32_t>& response : history_with_room(prompt_id))
    add(tokens, response, kHistoryWeight);
  add({}, tokens, kPresentWeight);
  return *prompts_.emplace(prompt_id, std::move(prompt)).first->second;
}

// The newest responses of earlier epochs whose index stays within the bound.
std::span<const std::vector<int32_t>> SuffixDrafter::history_with_room(uint32_t prompt_id) const {
  const SuffixHistory::Responses& all = history_.responses(prompt_id);
  int64_t room = options_.memory_bytes - memory_bytes();
  size_t count = 0;
  while (count < all.size()) {
    room -= kMostIndexBytes * std::ssize(all[all.size() - 1 - count]);
    if (room < 0) break;
    ++count;
  }
  return std::span(all).last(count);
}

void SuffixDrafter::commit(SequenceId id, std::span<const int32_t> tokens) {
  const auto sequence = running_.find(id);
  TLT_CHECK(sequence != running_.end(), "sequence ", id.sample, " of prompt ", id.prompt_id,
            " is not running");
  if (sequence->second.text == SuffixIndex::kNoText) return;
  SuffixIndex& index = sequence->second.prompt->index;
  const int64_t before = index.memory_bytes();
  for (const int32_t token : tokens) index.append(sequence->second.text, token);
  if (index.memory_bytes() != before) keep_within_memory();
}

void SuffixDrafter::end(SequenceId id) {
  const auto sequence = running_.find(id);
  TLT_CHECK(sequence != running_.end(), "sequence ", id.sample, " of prompt ", id.prompt_id,
            " is not running");
  Prompt& prompt = *sequence->second.prompt;
  if (sequence->second.text != SuffixIndex::kNoText) prompt.ended.push_back(sequence->second.text);
  running_.erase(sequence);
  if (--prompt.running > 0) return;
  remember(id.prompt_id, prompt);
  prompt.ended.clear();
  prompt.index.clear();
  const auto done = prompts_.find(id.prompt_id);
  spare_.push_back(std::move(done->second));
  prompts_.erase(done);
  keep_within_memory();
}

void SuffixDrafter::remember(uint32_t prompt_id, const Prompt& prompt) {
  for (const int32_t text : prompt.ended)
    if (const auto response = prompt.index.tokens(text); !response.empty())
      history_.add(prompt_id, response);
}

void SuffixDrafter::propose(std::span<const DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    const auto sequence = running_.find(request.id);
    TLT_CHECK(sequence != running_.end(), "sequence ", request.id.sample, " of prompt ",
              request.id.prompt_id, " is not running");
    const auto& [prompt, text] = sequence->second;
    tree_.occurrences()->clear();
    if (text != SuffixIndex::kNoText && !request.strategy.is_off())
      prompt->index.find(text, request.path, tree_.occurrences());
    tree_.fill(request.strategy, options_.min_probability, request.tree);
  }
}

int64_t SuffixDrafter::memory_bytes() const {
  int64_t bytes = history_.memory_bytes() + tree_.memory_bytes();
  for (const auto& [id, prompt] : prompts_) bytes += prompt->index.memory_bytes();
  for (const auto& prompt : spare_) bytes += prompt->index.memory_bytes();
  return bytes;
}

// Histories go first, because a spare index is memory that the next prompt needs anyway. They have
// half of it at most: the other half is for indexing them.
void SuffixDrafter::keep_within_memory() {
  const int64_t indexed = memory_bytes() - history_.memory_bytes();
  const int64_t most = std::min(options_.memory_bytes / 2, options_.memory_bytes - indexed);
  while (history_.memory_bytes() > most && history_.forget_oldest()) {
  }
  if (indexed > options_.memory_bytes) spare_.clear();
}

}  // namespace tlt::spec
