// A tiny model that tensor parallel groups of 2 and 4 can divide; four ranks have padding in the
// vocabulary.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/tiny_model.h"

namespace tlt::tests {

// 4 ranks have 25 rows of the vocabulary each, two of which are padding on the last one.
inline model::ModelConfig divisible_config(model::Family family) {
  model::ModelConfig config = tiny_config(family);
  config.heads = 8;
  config.kv_heads = 4;
  config.intermediate = 128;
  config.vocabulary = 98;
  return config;
}

}  // namespace tlt::tests
