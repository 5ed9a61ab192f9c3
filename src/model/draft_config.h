// The config.json of a drafter, as SGLang's EAGLE classes read it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model_config.h"

namespace tlt::model {

// "Qwen2ForCausalLMEagle" …
std::string draft_architecture(Family family);

// What `config` says, in transformers 4's spelling (transformers 5 reads it, too). The special
// tokens are those of the target's config.json.
nlohmann::json draft_config_json(const ModelConfig& config, const nlohmann::json& target);

}  // namespace tlt::model
