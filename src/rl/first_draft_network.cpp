// SPDX-License-Identifier: Apache-2.0
#include "rl/first_draft_network.h"

#include <algorithm>

#include "drafter/make_draft_network.h"
#include "drafter_training/token_ranking.h"
#include "rollout/make_speculation.h"

namespace tlt::rl {
namespace {

constexpr int64_t kRankedPrompts = 8192;  // more do not change the ranking much

std::vector<int32_t> rank_tokens(const data::Dataset& prompts, const model::ModelConfig& target) {
  std::vector<drafter_training::DraftSample> samples(
      static_cast<size_t>(std::min(kRankedPrompts, prompts.size())));
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].tokens = prompts.prompt(static_cast<int64_t>(i)).tokens;
  return drafter_training::rank_tokens(samples, target.eos_tokens, target.vocabulary);
}

}  // namespace

std::shared_ptr<drafter::DraftNetwork> first_draft_network(const run::RunOptions& options,
                                                           const model::PolicyModel& model,
                                                           const data::Dataset& prompts) {
  const run::SpeculativeOptions& speculative = options.speculative;
  if (auto network = rollout::load_draft_network(speculative, model)) return network;
  const bool is_wanted =
      speculative.enable && speculative.train.idle.enable_drafter_training &&
      std::ranges::find(speculative.drafters, "eagle") != speculative.drafters.end();
  if (!is_wanted) return nullptr;
  const drafter::DraftNetworkPlan plan = speculative.train.network_plan();
  auto network = drafter::make_draft_network(plan, model);
  if (drafter::misses_head_tokens(plan, *network))
    drafter::choose_head_tokens(plan, rank_tokens(prompts, model.config()), *network);
  return network;
}

}  // namespace tlt::rl
