// What fuzz() needs to know of a parser: valid inputs, words of the format, and the call.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/mutator.h"

namespace tlt::tests {

struct FuzzPlan {
  std::string name = {};
  std::vector<std::string> corpus = {};      // whole inputs
  std::vector<std::string> dictionary = {};  // words of the format
  int64_t inputs = 0;                        // of a plain run
  size_t max_bytes = 1 << 17;                // of an input
  // Makes an input from two others; default: Mutator::bytes().
  std::function<std::string(Mutator&, const std::string&, const std::string&)> mutate = {};
};

// Calls a parser; returns "" or a summary of what the parser made of the input.
using FuzzCall = std::function<std::string(const std::string& text)>;

}  // namespace tlt::tests
