// EAGLE-3 draft model folders in SGLang's layout: config.json, `fc.weight`, `midlayer.*`,
// `norm.weight`, `lm_head.weight`, and the draft vocabulary: `d2t`, `t2d`.
//
// Not here   the meaning of the tensors (draft_eagle3.h); the keys of config.json
//            (draft_eagle3_config.h).
// Threading  engine thread only; a DraftSnapshot may be saved by any one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "drafter/eagle/draft_eagle3.h"
#include "drafter/files/draft_tensors.h"
#include "model/hf_folder.h"

namespace tlt::drafter {

// As load_drafter(). The layer may be named `layers.0`, as in vLLM's speculators.
std::unique_ptr<Eagle3Network> load_eagle3(const std::string& folder,
                                           const model::PolicyModel& target);

// Reads weights and draft vocabulary only, into a draft model of the same configuration.
void load_eagle3_weights(const std::string& folder, Eagle3Network& network);

// The tokens of the LM head's rows (`d2t`; `t2d` has the same information). Throws InputError
// unless they are ascending tokens of the vocabulary.
std::vector<int32_t> read_head_tokens(DraftTensors& tensors, const Eagle3Config& config,
                                      const std::string& folder);
// The tensors `d2t` and `t2d`.
std::vector<model::TensorSource> head_token_tensors(const std::vector<int32_t>& tokens,
                                                    int64_t vocabulary);

// REQUIRES: `network` lives and does not change until the result has been used.
model::PolicySnapshot describe_eagle3(const Eagle3Network& network);

}  // namespace tlt::drafter
