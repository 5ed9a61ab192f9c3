// The config.json of a drafter, as SGLang's EAGLE classes read it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model_config.h"

namespace tlt::model {

// Its architectures name an EAGLE-3 drafter (draft_eagle3_config.h).
bool is_eagle3_config(const nlohmann::json& source);

// The architecture of the decoder that a drafter's layer is one of: "Qwen2ForCausalLM" for
// "Qwen2ForCausalLMEagle". InputError names `path` when the object is no EAGLE drafter's.
std::string policy_architecture(const nlohmann::json& source, const std::string& path);

// InputError names `where` when a drafter of this configuration cannot serve the target.
void check_fits_target(const ModelConfig& drafter, const ModelConfig& target,
                       const std::string& where);

// What `config` says, in transformers 4's spelling (transformers 5 reads it, too). The special
// tokens are those of the target's config.json.
nlohmann::json draft_config_json(const ModelConfig& config, const nlohmann::json& target);

}  // namespace tlt::model
