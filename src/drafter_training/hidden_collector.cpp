// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/hidden_collector.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>

#include "base/check.h"

namespace tlt::drafter_training {

void HiddenCollector::offer(uint32_t prompt_id, uint32_t sample, int32_t position,
                            const at::Tensor& hidden, std::span<const int32_t> tokens) {
  Kept& kept = kept_[{prompt_id, sample}];
  const at::Tensor rows = hidden.cpu().contiguous();
  TLT_CHECK(rows.size(0) == std::ssize(tokens), rows.size(0), " states for ", tokens.size());
  if (kept.tokens.empty()) kept.first_position = position;
  TLT_CHECK(position == kept.first_position + std::ssize(kept.tokens), "state ", position,
            " of prompt ", prompt_id, " after ", kept.tokens.size(), " from ", kept.first_position);
  kept.hidden = rows.size(1);
  kept.type = rows.scalar_type();
  kept.tokens.insert(kept.tokens.end(), tokens.begin(), tokens.end());
  kept.rows.append(static_cast<const char*>(rows.const_data_ptr()), rows.nbytes());
}

at::Tensor HiddenCollector::join(std::span<const Kept* const> parts) {
  int64_t rows = 0;
  for (const Kept* part : parts) rows += std::ssize(part->tokens);
  at::Tensor states = at::empty({rows, parts.front()->hidden}, parts.front()->type);
  auto* to = static_cast<char*>(states.mutable_data_ptr());
  for (const Kept* part : parts) {
    std::memcpy(to, part->rows.data(), part->rows.size());
    to += part->rows.size();
  }
  return states;
}

std::optional<DraftSample> HiddenCollector::take(const std::vector<int32_t>& prompt,
                                                 const rollout::Response& response, uint32_t id) {
  const auto own = kept_.extract({response.prompt_id, response.sample});
  const auto shared = kept_.find({response.prompt_id, kPrompt});
  if (shared == kept_.end()) return std::nullopt;
  TLT_CHECK(shared->second.tokens == prompt, "other states than those of prompt ",
            response.prompt_id);
  std::vector<const Kept*> parts = {&shared->second};
  std::vector<int32_t> tokens = prompt;
  if (!own.empty()) {
    const std::vector<int32_t>& offered = own.mapped().tokens;
    TLT_CHECK(own.mapped().first_position == std::ssize(prompt) &&
                  offered.size() <= response.tokens.size() &&
                  std::equal(offered.begin(), offered.end(), response.tokens.begin()),
              "other states than those of response ", response.sample, " to prompt ",
              response.prompt_id);
    tokens.insert(tokens.end(), offered.begin(), offered.end());
    parts.push_back(&own.mapped());
  }
  if (tokens.size() < 2) return std::nullopt;
  return make_sample(std::move(tokens), join(parts), static_cast<int32_t>(prompt.size()), id);
}

std::optional<DraftSample> HiddenCollector::take_prompt(uint32_t prompt_id, int32_t response_begin,
                                                        uint32_t id) {
  const auto own = kept_.extract({prompt_id, kPrompt});
  if (own.empty() || own.mapped().tokens.size() < 2) return std::nullopt;
  return make_sample(own.mapped().tokens, join(std::array<const Kept*, 1>{&own.mapped()}),
                     response_begin, id);
}

int64_t HiddenCollector::bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, kept] : kept_) bytes += std::ssize(kept.rows);
  return bytes;
}

}  // namespace tlt::drafter_training
