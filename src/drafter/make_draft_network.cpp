// SPDX-License-Identifier: Apache-2.0
#include "drafter/make_draft_network.h"

#include <algorithm>

#include "base/check.h"
#include "drafter/eagle/draft_eagle.h"
#include "drafter/eagle/draft_eagle3.h"
#include "drafter/files/draft_folder.h"
#include "drafter/files/draft_hot_tokens.h"

namespace tlt::drafter {

std::unique_ptr<DraftNetwork> make_draft_network(const DraftNetworkPlan& plan,
                                                 const model::PolicyModel& target) {
  if (!plan.folder.empty()) return load_drafter(plan.folder, target);
  if (plan.algorithm == "eagle3") {
    const int64_t all = target.config().vocabulary;
    auto network = std::make_unique<Eagle3Network>(
        target, Eagle3Config::make(target.config(),
                                   plan.head_rows > 0 ? std::min(plan.head_rows, all) : all));
    network->initialize(plan.seed);
    return network;
  }
  TLT_CHECK(plan.algorithm == "eagle", "no draft model ", plan.algorithm);
  auto network = std::make_unique<EagleNetwork>(target, EagleNetwork::config_for(target.config()));
  plan.from_target ? network->initialize_from_target(plan.seed) : network->initialize(plan.seed);
  return network;
}

bool misses_head_tokens(const DraftNetworkPlan& plan, const DraftNetwork& network) {
  return plan.folder.empty() && network.head_rows() < network.config().vocabulary;
}

void choose_head_tokens(const DraftNetworkPlan& plan, std::span<const int32_t> ranked,
                        DraftNetwork& network) {
  dynamic_cast<Eagle3Network&>(network).set_head_tokens(hottest(ranked, network.head_rows()));
  network.initialize(plan.seed);
}

}  // namespace tlt::drafter
