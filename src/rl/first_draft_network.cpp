// SPDX-License-Identifier: Apache-2.0
#include "rl/first_draft_network.h"

#include <algorithm>

#include "drafter/eagle/draft_eagle.h"
#include "drafter/eagle/draft_eagle3.h"
#include "drafter/files/draft_folder.h"
#include "drafter/files/draft_hot_tokens.h"
#include "drafter_training/token_ranking.h"
#include "rollout/make_speculation.h"

namespace tlt::rl {
namespace {

constexpr int64_t kRankedPrompts = 8192;  // more do not change the ranking much

std::shared_ptr<drafter::DraftNetwork> make_eagle3(const run::SpeculativeTrainOptions& options,
                                                   const model::PolicyModel& model,
                                                   const data::Dataset& prompts) {
  const model::ModelConfig& target = model.config();
  const int64_t all = target.vocabulary, wanted = options.warmup.draft_vocab_size;
  auto network = std::make_shared<drafter::Eagle3Network>(
      model, drafter::Eagle3Config::make(target, wanted > 0 ? std::min(wanted, all) : all));
  if (network->head_rows() < all) {
    std::vector<drafter_training::DraftSample> samples(
        static_cast<size_t>(std::min(kRankedPrompts, prompts.size())));
    for (size_t i = 0; i < samples.size(); ++i)
      samples[i].tokens = prompts.prompt(static_cast<int64_t>(i)).tokens;
    network->set_head_tokens(drafter::hottest(
        drafter_training::rank_tokens(samples, target.eos_tokens, target.vocabulary),
        network->head_rows()));
  }
  network->initialize(static_cast<uint64_t>(options.trainer.seed));
  return network;
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
  const std::string& init = speculative.train.warmup.init;
  if (init != "random" && init != "target") return drafter::load_drafter(init, model);
  if (speculative.train.warmup.algorithm == "eagle3")
    return make_eagle3(speculative.train, model, prompts);
  auto network = std::make_shared<drafter::EagleNetwork>(
      model, drafter::EagleNetwork::config_for(model.config()));
  const auto seed = static_cast<uint64_t>(speculative.train.trainer.seed);
  init == "target" ? network->initialize_from_target(seed) : network->initialize(seed);
  return network;
}

}  // namespace tlt::rl
