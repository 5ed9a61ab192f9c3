// The config.json of a draft model, as SGLang's EAGLE classes read it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model_config.h"

namespace tlt::drafter {

// True if the architectures name an EAGLE-3 draft model (draft_eagle3_config.h).
bool is_eagle3_config(const nlohmann::json& source);

// The architecture of the decoder that the draft model's layer belongs to: "Qwen2ForCausalLM" for
// "Qwen2ForCausalLMEagle". Throws InputError with `path` if the object is not of an EAGLE draft
// model.
std::string policy_architecture(const nlohmann::json& source, const std::string& path);

// Throws InputError with `where` if a draft model of this configuration does not fit the target.
void check_fits_target(const model::ModelConfig& drafter, const model::ModelConfig& target,
                       const std::string& where);

// The config.json for `config`, in transformers 4's format (transformers 5 reads it, too). The
// special tokens are those of the target's config.json.
nlohmann::json draft_config_json(const model::ModelConfig& config, const nlohmann::json& target);

}  // namespace tlt::drafter
