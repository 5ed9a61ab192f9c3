// SPDX-License-Identifier: Apache-2.0
#include "drafter/suffix/suffix_history.h"

namespace tlt::drafter {
namespace {

constexpr int64_t kPromptBytes = 160;  // list and map nodes, and malloc's overhead

int64_t bytes_of(const SuffixHistory::Response& response) {
  constexpr int64_t kMalloc = 16;
  return static_cast<int64_t>(sizeof(response) + response.tokens.capacity() * sizeof(int32_t)) +
         kMalloc;
}

}  // namespace

void SuffixHistory::add(uint32_t prompt_id, std::span<const int32_t> response, int64_t policy) {
  if (most_ < 1) return;
  const auto [known, is_new] = by_id_.try_emplace(prompt_id);
  if (is_new) {
    known->second = prompts_.insert(prompts_.end(), Prompt{.id = prompt_id, .responses = {}});
    memory_bytes_ += kPromptBytes;
  } else {
    prompts_.splice(prompts_.end(), prompts_, known->second);
  }
  Responses& responses = known->second->responses;
  if (static_cast<int64_t>(responses.size()) >= most_) {
    memory_bytes_ -= bytes_of(responses.front());
    responses.erase(responses.begin());
  }
  responses.push_back({.tokens = {response.begin(), response.end()}, .policy = policy});
  memory_bytes_ += bytes_of(responses.back());
}

const SuffixHistory::Responses& SuffixHistory::responses(uint32_t prompt_id) const {
  static const Responses none;
  const auto known = by_id_.find(prompt_id);
  return known == by_id_.end() ? none : known->second->responses;
}

bool SuffixHistory::forget_oldest() {
  if (prompts_.empty()) return false;
  for (const Response& response : prompts_.front().responses) memory_bytes_ -= bytes_of(response);
  memory_bytes_ -= kPromptBytes;
  by_id_.erase(prompts_.front().id);
  prompts_.pop_front();
  return true;
}

}  // namespace tlt::drafter
