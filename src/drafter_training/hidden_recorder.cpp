// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/hidden_recorder.h"

#include <algorithm>
#include <map>

#include "base/interrupt.h"

namespace tlt::drafter_training {
namespace {

// The sample's id in messages.
uint32_t sample_id(int64_t prompt, int64_t samples, int64_t sample) {
  return static_cast<uint32_t>(prompt * samples + sample);
}

}  // namespace

HiddenRecorder::HiddenRecorder(const model::PolicyModel& target,
                               const rollout::EngineOptions& options,
                               const rollout::StopString* stop_string, See see,
                               rollout::Layers layers)
    : see_(std::move(see)),
      collector_(std::move(layers)),
      engine_(target, options, stop_string, &collector_) {}

std::optional<std::vector<StoredSample>> HiddenRecorder::roll_out(
    std::span<const RecordRow> prompts, const RecordPlan& plan) {
  std::map<uint32_t, size_t> place;  // index by prompt id
  std::map<uint32_t, int64_t> unfinished;
  for (size_t i = 0; i < prompts.size(); ++i) {
    place[prompts[i].prompt_id] = i;
    unfinished[prompts[i].prompt_id] = plan.samples;
    engine_.submit({.prompt_id = prompts[i].prompt_id,
                    .rl_step = plan.rl_step,
                    .tokens = prompts[i].tokens,
                    .samples = plan.samples,
                    .sampling = plan.sampling,
                    .seed = plan.seed});
  }
  std::map<std::pair<size_t, uint32_t>, StoredSample> samples;
  while (!interrupted() && engine_.step()) {
    const std::vector<rollout::Response> finished = engine_.take_finished();
    for (const rollout::Response& response : finished) {
      const size_t at = place.at(response.prompt_id);
      auto sample = collector_.take(prompts[at].tokens, response,
                                    sample_id(prompts[at].prompt, plan.samples, response.sample));
      if (sample)
        samples[{at, response.sample}] = StoredSample{std::move(*sample), prompts[at].prompt};
      if (--unfinished.at(response.prompt_id) == 0) collector_.forget_prompt(response.prompt_id);
    }
    if (!finished.empty()) see_(std::ssize(finished));
  }
  if (interrupted()) return std::nullopt;
  std::vector<StoredSample> result;
  for (auto& [key, sample] : samples) result.push_back(std::move(sample));
  return result;
}

std::optional<std::vector<StoredSample>> HiddenRecorder::read(std::span<const RecordRow> rows) {
  rollout::SamplingOptions one_token;
  one_token.max_new_tokens = 1;
  const auto sampling = std::make_shared<const rollout::SamplingOptions>(one_token);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<int32_t> tokens = rows[i].tokens;
    if (tokens.size() > 1) tokens.pop_back();
    engine_.submit(
        {.prompt_id = static_cast<uint32_t>(i), .tokens = std::move(tokens), .sampling = sampling});
  }
  std::vector<std::optional<StoredSample>> samples(rows.size());
  while (!interrupted() && engine_.step()) {
    const std::vector<rollout::Response> finished = engine_.take_finished();
    for (const rollout::Response& response : finished) {
      const RecordRow& row = rows[response.prompt_id];
      auto sample = collector_.take_prompt(response.prompt_id, row.response_begin,
                                           sample_id(row.prompt, 1, 0));
      if (sample) samples[response.prompt_id] = StoredSample{std::move(*sample), row.prompt};
    }
    if (!finished.empty()) see_(std::ssize(finished));
  }
  if (interrupted()) return std::nullopt;
  std::vector<StoredSample> result;
  for (auto& sample : samples)
    if (sample) result.push_back(std::move(*sample));
  return result;
}

}  // namespace tlt::drafter_training
