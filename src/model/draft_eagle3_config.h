// Eagle3Config: the shape of an EAGLE-3 drafter, and its config.json as SGLang reads it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model_config.h"

namespace tlt::model {

struct Eagle3Config {
  static constexpr int64_t kCaptured = 3;

  ModelConfig layer;            // family Llama: SGLang has no other
  int64_t head_rows = 0;        // R: tokens that can be drafted
  std::vector<int64_t> layers;  // what goes into these layers of the target is shown, ascending

  // A Llama layer of the target's sizes with a head of `head_rows` tokens, shown layers 2, L / 2
  // and L - 3; of targets with fewer than seven layers the last three. InputError below three.
  static Eagle3Config make(const ModelConfig& target, int64_t head_rows);

  // InputError names the file, the key and what is accepted.
  static Eagle3Config read(const std::string& folder, const ModelConfig& target);

  // InputError names `where` when such a drafter cannot serve the target.
  void check_fits(const ModelConfig& target, const std::string& where) const;
};

}  // namespace tlt::model
