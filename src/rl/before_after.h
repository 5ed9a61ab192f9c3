// BeforeAfter: the same validation prompt answered by the policy before and after training, from
// the run folder's validation dumps.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tlt::rl {

struct BeforeAfter {
  struct Answer {
    int64_t step = 0;  // of the validation
    std::string text;
    double score = 0;
    bool is_truncated = false;
  };
  std::string prompt;
  Answer before, after;
};

// From the first and the last file of `folder` (000000.jsonl, 000010.jsonl …): the sample whose
// score rose most, the shortest of those. nullopt: there are no two files with a prompt in common.
std::optional<BeforeAfter> find_before_after(const std::string& folder);

// Lines for a terminal: the prompt, then each answer, cut in the middle where it is long.
std::vector<std::string> describe(const BeforeAfter& example);

}  // namespace tlt::rl
