// EAGLE-3 drafter folders in SGLang's layout: config.json, `fc.weight`, `midlayer.*`,
// `norm.weight`, `lm_head.weight`, and which tokens the head's rows are: `d2t`, `t2d`.
//
// Not here   what the tensors mean (draft_eagle3.h); the keys of config.json
//            (draft_eagle3_config.h).
// Threading  engine thread only; a DraftSnapshot may be saved by any one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "model/draft_eagle3.h"
#include "model/draft_tensors.h"
#include "model/hf_folder.h"

namespace tlt::model {

// As load_drafter(). The layer may be called `layers.0`, as speculators of vLLM have it.
std::unique_ptr<Eagle3Network> load_eagle3(const std::string& folder, const PolicyModel& target);

// Weights and tokens only, into a drafter of the same configuration.
void load_eagle3_weights(const std::string& folder, Eagle3Network& network);

// What the head's rows are tokens of (`d2t`; `t2d` says the same). InputError when they are not
// ascending tokens of the vocabulary.
std::vector<int32_t> read_head_tokens(DraftTensors& tensors, const Eagle3Config& config,
                                      const std::string& folder);
// Those two tensors.
std::vector<TensorSource> head_token_tensors(const std::vector<int32_t>& tokens,
                                             int64_t vocabulary);

// REQUIRES: `network` lives and does not change until the result has been used.
PolicySnapshot describe_eagle3(const Eagle3Network& network);

}  // namespace tlt::model
