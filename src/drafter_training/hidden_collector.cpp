// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/hidden_collector.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"

namespace tlt::drafter_training {

void TokenStates::append(const rollout::HiddenStateObserver::Rows& hidden,
                         std::span<const int32_t> tokens) {
  rows_.append(hidden.states, hidden.first, std::ssize(tokens));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  const int64_t now =
      rows_.memory_bytes() + static_cast<int64_t>(tokens_.capacity() * sizeof(int32_t));
  *bytes_ += now - counted_;
  counted_ = now;
}

DraftSample piece_of(const std::shared_ptr<const HiddenSequence>& sequence, int64_t first,
                     int64_t tokens, uint32_t id) {
  const int64_t prompt = sequence->prompt->size();
  const int64_t from_prompt = std::clamp<int64_t>(prompt - first, 0, tokens);
  const int64_t own_first = std::max<int64_t>(0, first - prompt), own = tokens - from_prompt;
  DraftSample sample;
  const auto append = [&](const std::vector<int32_t>& from, int64_t begin, int64_t count) {
    sample.tokens.insert(sample.tokens.end(), from.begin() + begin, from.begin() + begin + count);
  };
  if (from_prompt > 0) append(sequence->prompt->tokens(), first, from_prompt);
  append(sequence->response.tokens(), own_first, own);
  sample.response_begin = static_cast<int32_t>(from_prompt);
  sample.id = id;
  sample.states = [sequence, first, from_prompt, own_first, own] {
    std::vector<at::Tensor> parts;
    if (from_prompt > 0) parts.push_back(sequence->prompt->states(first, from_prompt));
    if (own > 0) parts.push_back(sequence->response.states(own_first, own));
    return at::cat(parts);
  };
  return sample;
}

std::shared_ptr<HiddenSequence> HiddenCollector::add(uint32_t prompt_id, uint32_t sample,
                                                     int32_t position, const Rows& hidden,
                                                     std::span<const int32_t> tokens) {
  std::shared_ptr<TokenStates>& prompt = prompts_[prompt_id];
  if (sample == kPrompt) {
    if (position == 0) prompt = make_tokens();
    if (prompt && prompt->size() == position) prompt->append(hidden, tokens);
    return nullptr;
  }
  std::shared_ptr<HiddenSequence>& sequence = sequences_[{prompt_id, sample}];
  // Offered from its prompt on again: the sequence migrated to another worker and back, or its
  // prompt occurs twice in this step. The earlier piece stays.
  if (sequence && position == sequence->prompt->size()) sequence.reset();
  const bool is_new = !sequence;
  if (is_new && (!prompt || prompt->size() != position)) return nullptr;
  if (is_new) sequence = std::make_shared<HiddenSequence>(prompt);
  // A resumed response: its last page is offered again. Tokens are missing if the engine had them
  // from another sequence.
  const int64_t known = sequence->tokens() - position;
  if (known < 0) {
    sequence.reset();
    return nullptr;
  }
  if (known >= std::ssize(tokens)) return nullptr;
  sequence->response.append({hidden.states, hidden.first + known},
                            tokens.subspan(static_cast<size_t>(known)));
  return is_new ? sequence : nullptr;
}

std::optional<DraftSample> HiddenCollector::take(const std::vector<int32_t>& prompt,
                                                 const rollout::Response& response, uint32_t id) {
  const auto own = sequences_.extract({response.prompt_id, response.sample});
  std::shared_ptr<const HiddenSequence> sequence = own.empty() ? nullptr : own.mapped();
  if (!sequence) {  // one token has no state of its own
    const auto shared = prompts_.find(response.prompt_id);
    if (shared == prompts_.end() || !shared->second) return std::nullopt;
    sequence = std::make_shared<HiddenSequence>(shared->second);
  }
  const std::vector<int32_t>& offered = sequence->response.tokens();
  TLT_CHECK(sequence->prompt->tokens() == prompt && offered.size() <= response.tokens.size() &&
                std::equal(offered.begin(), offered.end(), response.tokens.begin()),
            "other states than those of response ", response.sample, " to prompt ",
            response.prompt_id);
  if (sequence->tokens() < 2) return std::nullopt;
  return piece_of(sequence, 0, sequence->tokens(), id);
}

std::optional<DraftSample> HiddenCollector::take_prompt(uint32_t prompt_id, int32_t response_begin,
                                                        uint32_t id) {
  const auto own = prompts_.extract(prompt_id);
  if (own.empty() || !own.mapped() || own.mapped()->size() < 2) return std::nullopt;
  const auto sequence = std::make_shared<HiddenSequence>(own.mapped());
  DraftSample sample = piece_of(sequence, 0, sequence->tokens(), id);
  sample.response_begin = response_begin;
  return sample;
}

void HiddenCollector::forget(const HiddenSequence& sequence) {
  std::erase_if(sequences_, [&](const auto& entry) { return entry.second.get() == &sequence; });
}

void HiddenCollector::forget_all() {
  sequences_.clear();
  prompts_.clear();
}

}  // namespace tlt::drafter_training
