// Hot tokens: the tokens that a draft model should have in its LM head, most frequent first
// (FR-Spec). A few of a large vocabulary make up nearly all of a text, and an LM head of few rows
// is read faster.
//
// A draft model's folder may have them in hot_token_id.json: a list of tokens, as SGLang's
// speculative_token_map has it in a file of torch.save().
//
// Not here   counting them (drafter_training/token_ranking.h).
// Threading  no state; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tlt::drafter {

// Empty if the folder has none. Throws InputError unless the file is a list of different tokens
// below `vocabulary`.
std::vector<int32_t> read_hot_tokens(const std::string& folder, int64_t vocabulary);
void write_hot_tokens(const std::string& folder, std::span<const int32_t> tokens);

// The first `count` tokens, ascending: the rows of an LM head. 0: all.
std::vector<int32_t> hottest(std::span<const int32_t> ranked, int64_t count);

}  // namespace tlt::drafter
