// SPDX-License-Identifier: Apache-2.0
#include "rollout/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace tlt::rollout {

int64_t GroupState::pages_to_finish() const {
  const int64_t positions = prompt_tokens() + max_new_tokens - 1;  // the last token is not computed
  const bool copies_a_page =
      request.samples > 1 && max_new_tokens > 1 && prompt_tokens() % ops::kPageSlots != 0;
  return ops::pages_for(positions) + (copies_a_page ? 1 : 0);
}

Sequence* GroupState::lone_resumed() const {
  return unfinished.size() == 1 && !unfinished.front()->tokens.empty() ? unfinished.front()
                                                                       : nullptr;
}

void Sequence::copy_page(int64_t page, PageTokens& copy) const {
  const auto first = static_cast<int32_t>(page * ops::kPageSlots);
  for (int32_t i = 0; i < ops::kPageSlots; ++i) copy[static_cast<size_t>(i)] = token_at(first + i);
}

double Sequence::uniform_at(size_t more) const {
  const Group& request = group->request;
  const uint64_t key =
      request.random_key.value_or(uint64_t{request.rl_step} << 32 | request.prompt_id);
  return uniform(request.seed, {.step = static_cast<uint32_t>(key >> 32),
                                .prompt = static_cast<uint32_t>(key),
                                .sample = sample,
                                .position = static_cast<uint32_t>(tokens.size() + more)});
}

void Sequence::resume(Response response) {
  TLT_CHECK(tokens.empty() && response.prompt_id == group->request.prompt_id);
  TLT_CHECK(group->request.top_logprobs == 0, "a resumed response has no top logprobs");
  TLT_CHECK(response.has_statistics() && std::ssize(response.tokens) < group->max_new_tokens,
            response.tokens.size(), " tokens, ", response.logprobs.size(), " logprobs and ",
            response.entropies.size(), " entropies of ", group->max_new_tokens);
  sample = response.sample;
  resumed = response.tokens;
  logprobs = std::move(response.logprobs);
  entropies = std::move(response.entropies);
  target_forwards = response.target_forwards;
  tokens = std::move(response.tokens);
  observed = std::move(response.observed);
  const size_t turn = observed.empty() ? 0 : static_cast<size_t>(observed.back().end);
  if (const std::vector<std::string>& stop = group->request.sampling->stop;
      !stop.empty() && tokens.size() > turn) {
    stop_finder = std::make_unique<StopFinder>(group->stop_string->open(), stop);
    for (const int32_t token : std::span(tokens).subspan(turn))
      TLT_CHECK(!stop_finder->push(token));
  }
}

std::optional<FinishReason> Sequence::append(const ops::Sampled& sampled) {
  tokens.push_back(sampled.token);
  logprobs.push_back(sampled.logprob);
  entropies.push_back(sampled.entropy);
  if (std::ranges::count(group->stop_tokens, sampled.token) > 0) return FinishReason::kStop;
  const std::vector<std::string>& stop = group->request.sampling->stop;
  if (!stop.empty()) {
    if (!stop_finder) stop_finder = std::make_unique<StopFinder>(group->stop_string->open(), stop);
    if (stop_finder->push(sampled.token)) return FinishReason::kStop;
  }
  if (std::ssize(tokens) >= group->max_new_tokens) return FinishReason::kLength;
  return std::nullopt;
}

Response Sequence::finish(FinishReason reason) {
  state = State::kFinished;
  return {.prompt_id = group->request.prompt_id,
          .rl_step = group->request.rl_step,
          .sample = sample,
          .tokens = std::move(tokens),
          .logprobs = std::move(logprobs),
          .entropies = std::move(entropies),
          .observed = std::move(observed),
          .top_logprobs = std::move(top_logprobs),
          .finish = reason,
          .target_forwards = target_forwards,
          .cached_tokens = group->cached_tokens};
}

}  // namespace tlt::rollout
