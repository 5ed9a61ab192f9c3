// BeforeAfter: the policy's responses to one validation prompt before and after training, read from
// the validation dumps of the run folder.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tlt::run {

struct BeforeAfter {
  struct Answer {
    int64_t step = 0;  // RL steps done at this validation
    std::string text;
    double score = 0;
    bool is_truncated = false;
  };
  std::string prompt;
  Answer before, after;
};

// Compares the first and the last file of `folder` (000000.jsonl, 000010.jsonl …) and returns the
// sample whose score rose most, the shortest of equal ones. nullopt: no two files share a prompt.
std::optional<BeforeAfter> find_before_after(const std::string& folder);

// Lines for a terminal: the prompt and both answers; long ones lose lines in the middle.
std::vector<std::string> describe(const BeforeAfter& example);

}  // namespace tlt::run
