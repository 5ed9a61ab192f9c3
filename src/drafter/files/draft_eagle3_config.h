// Eagle3Config: the shape of an EAGLE-3 draft model, and its config.json as SGLang reads it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model_config.h"

namespace tlt::drafter {

struct Eagle3Config {
  static constexpr int64_t kCaptured = 3;

  model::ModelConfig layer;     // family Llama: SGLang supports no other
  int64_t head_rows = 0;        // R: size of the draft vocabulary
  std::vector<int64_t> layers;  // target layers whose inputs it reads, ascending

  // A Llama layer of the target's sizes with an LM head of `head_rows` tokens; it reads the inputs
  // of layers 2, L / 2 and L - 3, and of the last three in targets with fewer than seven layers.
  // Throws InputError below three layers.
  static Eagle3Config make(const model::ModelConfig& target, int64_t head_rows);

  // Reads config.json. Throws InputError that names the file, the key and what is accepted.
  static Eagle3Config read(const std::string& folder, const model::ModelConfig& target);

  // Throws InputError with `where` if such a draft model does not fit the target.
  void check_fits(const model::ModelConfig& target, const std::string& where) const;
};

}  // namespace tlt::drafter
