// SPDX-License-Identifier: Apache-2.0
#include "rollout/draft_step.h"

#include <algorithm>

namespace tlt::rollout {

void DraftStep::begin(std::span<const std::unique_ptr<Sequence>> running) {
  requests_.clear();
  verified_.clear();
  keeps_shortest_ = false;
  load_ = {0};
  for (const auto& sequence : running) {
    sequence->draft.clear();
    if (!sequence->decodes()) continue;
    ++load_.batch;
    ++load_.positions[speculation::position_bucket(std::ssize(sequence->tokens))];
    load_.context += static_cast<double>(sequence->computed);
  }
  load_.context /= static_cast<double>(std::max<int64_t>(1, load_.batch));
}

void DraftStep::request(std::span<const std::unique_ptr<Sequence>> running,
                        const drafter::Strategy& strategy, bool shares_uniforms) {
  uniforms_.clear();
  uniforms_.reserve(static_cast<size_t>(load_.batch * strategy.depth));  // keep views valid
  for (const auto& sequence : running) {
    if (!sequence->decodes()) continue;
    // No tree starts at a response's last token, so a path is shorter than what remains.
    drafter::Strategy limited = strategy;
    limited.depth = std::min(limited.depth, sequence->remaining() - 1);
    if (limited.depth < 1) continue;
    const Group& group = sequence->group->request;
    requests_.push_back({.id = sequence->id(),
                         .prompt = group.tokens,
                         .response = sequence->tokens,
                         .strategy = limited,
                         .tree = &sequence->draft});
    if (shares_uniforms) requests_.back().draws = uniforms_of(*sequence, limited.depth);
  }
}

drafter::SharedUniforms DraftStep::uniforms_of(const Sequence& sequence, int64_t tokens) {
  const ops::SamplingRule rule = sequence.rule();
  if (rule.temperature <= 0) return {};
  const size_t first = uniforms_.size();
  for (int64_t i = 0; i < tokens; ++i)
    uniforms_.push_back(sequence.uniform_at(static_cast<size_t>(i)));
  return {std::span(uniforms_).subspan(first), rule};
}

void DraftStep::keep_shortest(int64_t count) {
  keeps_shortest_ = true;
  if (std::ssize(requests_) <= count) return;
  const auto end = requests_.begin() + count;
  std::ranges::nth_element(requests_, end, {}, [](const drafter::DraftRequest& request) {
    return std::pair(request.response.size(), request.id);
  });
  requests_.erase(end, requests_.end());
}

bool DraftStep::includes(drafter::SequenceId id) const {
  return !keeps_shortest_ ||
         std::ranges::find(requests_, id, &drafter::DraftRequest::id) != requests_.end();
}

void DraftStep::collect(const StepPlan& plan, bool drafted) {
  batch_ = tokens_ = 0;
  has_prompt_rows_ = plan.has_prompt_rows();
  for (const SampleRequest& request : plan.sample_requests) {
    const Sequence& sequence = *request.sequence;
    if (sequence.target_forwards == 1) continue;  // its first token: not decoding
    const int64_t tokens = plan.committed_tokens(request);
    ++batch_;
    tokens_ += tokens;
    if (!drafted) continue;
    // Not from sequence.tokens: those of a finished sequence have been moved out.
    const int64_t position = sequence.computed + 1 - sequence.group->prompt_tokens() - tokens;
    if (request.is_tree) {
      verified_.push_back(
          {sequence.draft.nodes(), plan.segments[request.segment].kept_path.back() - 1, position});
    } else if (sequence.draft.empty() && includes(sequence.id())) {
      verified_.push_back({.nodes = {}, .position = position});
    }
  }
}

speculation::StepOutcome DraftStep::outcome() const {
  return {.batch = batch_,
          .context = load_.context,
          .tokens = tokens_,
          .trees = verified_,
          .has_prompt_rows = has_prompt_rows_};
}

}  // namespace tlt::rollout
