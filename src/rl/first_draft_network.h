// The draft model that a run begins with.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "data/dataset.h"
#include "drafter/eagle/draft_network.h"
#include "model/policy_model.h"
#include "run/run_options.h"

namespace tlt::rl {

// Loads it from speculative.eagle.spec_model_path; without a path and with training during the run,
// makes it as speculative.train.init and algorithm say. Null: no draft model. The LM head of a new
// eagle3 draft model has the tokens that are frequent in the prompts, then those with the lowest
// ids, which tokenizers learn first. Responses are not known yet, and a resumed run chooses the
// same tokens.
std::shared_ptr<drafter::DraftNetwork> first_draft_network(const run::RunOptions& options,
                                                           const model::PolicyModel& model,
                                                           const data::Dataset& prompts);

}  // namespace tlt::rl
