// Fingerprint: tells a model's folder from another model's, wherever it lies, without reading all
// of it.
//
// Covers     every byte of config.json, generation_config.json (end-of-sequence tokens),
//            tokenizer.json, tokenizer_config.json, chat_template.jinja and a draft model's hot_token_id.json; of each file of
//            weights its name, its size and 64 blocks of 64 KiB, spread evenly from its first
//            byte (the table of tensors) to its last.
// Not        weights between the blocks: training changes all weights, so another training of the
//            same model is told; a file of which a few numbers were edited may not be.
//
//   fingerprint("models/Qwen3-0.6B") == fingerprint("a/copy/of/it")
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tlt::model {

// SHA-256. `has_weights` false: without the weights, for a model that starts from random ones.
// InputError when config.json or the weights cannot be read.
std::string fingerprint(const std::string& folder, bool has_weights = true);

}  // namespace tlt::model
