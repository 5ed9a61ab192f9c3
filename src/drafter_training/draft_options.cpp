// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/draft_options.h"

#include "base/check.h"

namespace tlt::drafter_training {

void DraftTrainOptions::check() const {
  const std::string where = "speculative.train.";
  TLT_CHECK_INPUT(batch_size >= 1, where, "batch_size is ", batch_size, "; give at least 1");
  TLT_CHECK_INPUT(logits_weight >= 0, where, "logits_weight is ", logits_weight,
                  "; give a number of at least 0");
  TLT_CHECK_INPUT(passes >= 0 && passes <= 16, where, "passes is ", passes,
                  "; give a number from 1 to 16, or 0 for the algorithm's own");
  optim.check();
}

void WarmupOptions::check() const {
  const std::string where = "speculative.train.";
  TLT_CHECK_INPUT(algorithm == "eagle" || algorithm == "eagle3", where, "algorithm is '", algorithm,
                  "'; use eagle or eagle3");
  TLT_CHECK_INPUT(draft_vocab_size >= 0, where, "draft_vocab_size is ", draft_vocab_size,
                  "; give a number of tokens, or 0 for all");
  TLT_CHECK_INPUT(algorithm == "eagle" || init != "target", where,
                  "init is target, and an eagle3 drafter has no layer of the target's shape; use "
                  "random or the folder of a drafter");
  TLT_CHECK_INPUT(source == "rollouts" || source == "responses", where, "source is '", source,
                  "'; use rollouts or responses");
  TLT_CHECK_INPUT(!init.empty(), where,
                  "init is empty; use target, random, or the folder of a drafter");
}

drafter::DraftNetworkPlan WarmupOptions::network_plan(uint64_t seed) const {
  const bool is_new = init == "random" || init == "target";
  return {.folder = is_new ? "" : init,
          .algorithm = algorithm,
          .from_target = init == "target",
          .head_rows = draft_vocab_size,
          .seed = seed};
}

}  // namespace tlt::drafter_training
