// SPDX-License-Identifier: Apache-2.0
#include "drafter/suffix/suffix_drafter.h"

#include <algorithm>

#include "base/check.h"

namespace tlt::drafter {
namespace {

constexpr float kPresentWeight = 1;
constexpr float kOlderWeight = 0.5f;
constexpr int64_t kMostIndexBytes = 112;  // per token, right after all vectors have doubled

void add_text(SuffixIndex& index, std::span<const int32_t> before, std::span<const int32_t> tokens,
              float weight) {
  const int32_t text = index.add_text(before, weight);
  if (text == SuffixIndex::kNoText) return;
  for (const int32_t token : tokens) index.append(text, token);
}

}  // namespace

void SuffixOptions::check() const {
  TLT_CHECK_INPUT(memory_bytes >= 0, "memory_bytes is ", memory_bytes,
                  "; give 0 (no history) or a number of bytes such as 268435456");
}

SuffixDrafter::SuffixDrafter(const SuffixOptions& options)
    : options_(options), history_(options.history) {
  options_.check();
}

void SuffixDrafter::read(const DraftRequest& request) {
  const auto [place, is_new] = running_.try_emplace(request.id);
  Sequence& sequence = place->second;
  if (is_new) {
    Prompt& prompt = prompt_of(request.id.prompt_id, request.prompt);
    ++prompt.running;
    sequence = {.prompt = &prompt, .text = prompt.index.add_text(request.prompt, kPresentWeight)};
    keep_within_memory();
  }
  read(sequence, request.response);
}

void SuffixDrafter::read(Sequence& sequence, std::span<const int32_t> response) {
  TLT_CHECK(sequence.read <= response.size(), "a response of ", response.size(), " tokens had ",
            sequence.read, " before");
  if (sequence.text == SuffixIndex::kNoText) return;
  SuffixIndex& index = sequence.prompt->index;
  const int64_t before = index.memory_bytes();
  for (; sequence.read < response.size(); ++sequence.read)
    index.append(sequence.text, response[sequence.read]);
  if (index.memory_bytes() != before) keep_within_memory();
}

// The prompt's index, with its earlier responses, oldest first.
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
  for (const SuffixHistory::Response& response : history_within_memory(prompt_id))
    add_text(prompt->index, tokens, response.tokens,
             response.policy == policy_ ? kPresentWeight : kOlderWeight);
  add_text(prompt->index, {}, tokens, kPresentWeight);
  const auto last = tokens.last(std::min<size_t>(tokens.size(), SuffixIndex::kLongestMatch));
  prompt->last_tokens.assign(last.begin(), last.end());
  return *prompts_.emplace(prompt_id, std::move(prompt)).first->second;
}

// The newest responses whose index fits into the memory.
std::span<const SuffixHistory::Response> SuffixDrafter::history_within_memory(
    uint32_t prompt_id) const {
  const SuffixHistory::Responses& all = history_.responses(prompt_id);
  int64_t left = options_.memory_bytes - memory_bytes();
  size_t count = 0;
  while (count < all.size()) {
    left -= kMostIndexBytes * std::ssize(all[all.size() - 1 - count].tokens);
    if (left < 0) break;
    ++count;
  }
  return std::span(all).last(count);
}

// The group's running sequences match all of the response, read before or not.
void SuffixDrafter::end(SequenceId id, std::span<const int32_t> response) {
  if (!response.empty()) history_.add(id.prompt_id, response, policy_);
  const auto prompt = prompts_.find(id.prompt_id);
  if (prompt != prompts_.end()) {
    const auto sequence = running_.find(id);
    if (sequence == running_.end()) {
      add_text(prompt->second->index, prompt->second->last_tokens, response, kPresentWeight);
    } else {
      if (prompt->second->running > 1) read(sequence->second, response);
      running_.erase(sequence);
      if (--prompt->second->running == 0) forget(id.prompt_id);
    }
  }
  keep_within_memory();
}

void SuffixDrafter::forget(uint32_t prompt_id) {
  auto prompt = prompts_.extract(prompt_id);
  prompt.mapped()->index.clear();
  spare_.push_back(std::move(prompt.mapped()));
}

void SuffixDrafter::propose(std::span<const DraftRequest> requests) {
  for (const DraftRequest& request : requests) read(request);
  for (const DraftRequest& request : requests) {
    const Sequence& sequence = running_.at(request.id);
    tree_.occurrences()->clear();
    if (sequence.text != SuffixIndex::kNoText && !request.strategy.is_off())
      sequence.prompt->index.find(sequence.text, request.path, tree_.occurrences());
    tree_.fill(request.strategy, options_.min_probability, request.tree);
  }
}

int64_t SuffixDrafter::memory_bytes() const {
  int64_t bytes = history_.memory_bytes() + tree_.memory_bytes();
  for (const auto& [id, prompt] : prompts_) bytes += prompt->index.memory_bytes();
  for (const auto& prompt : spare_) bytes += prompt->index.memory_bytes();
  return bytes;
}

// Histories are evicted first, because the next prompt needs a spare index anyway. They get at most
// half of the memory: the other half is for indexing them.
void SuffixDrafter::keep_within_memory() {
  const int64_t indexed = memory_bytes() - history_.memory_bytes();
  const int64_t most = std::min(options_.memory_bytes / 2, options_.memory_bytes - indexed);
  while (history_.memory_bytes() > most && history_.forget_oldest()) {
  }
  if (indexed > options_.memory_bytes) spare_.clear();
}

}  // namespace tlt::drafter
