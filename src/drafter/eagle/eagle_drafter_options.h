// EagleDrafterOptions: memory and vocabulary of an EAGLE drafter (eagle_drafter.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/check.h"
#include "base/options.h"

namespace tlt::drafter {

struct EagleDrafterOptions {
  // Not an option: hidden states kept per sequence, which the draft model reads when it joins a
  // sequence late. Its context is mostly local, and 128 states of a 7B model are 0.9 MB.
  int64_t window = 128;
  int64_t kv_memory_bytes = int64_t{1} << 28;      // this and the next are parts of
  int64_t prompt_memory_bytes = int64_t{1} << 28;  // speculative.memory_bytes
  int64_t draft_vocab_size = 0;
  // Not an option: the draft model knows the random number that each token will be sampled with, so
  // more draft tokens are accepted. False in tlt bench, to compare.
  bool common_random_numbers = true;

  void visit(auto& v) {
    v(draft_vocab_size, "draft_vocab_size", Affects::kSpeed,
      "Vocabulary of an EAGLE-1/2 draft model: the most frequent tokens of hot_token_id.json in "
      "its folder; 0: all.");
  }

  // InputError names the field and what is accepted.
  void check() const {
    TLT_CHECK(kv_memory_bytes >= 0 && prompt_memory_bytes >= 0);
    TLT_CHECK_INPUT(draft_vocab_size >= 0, "speculative.eagle.draft_vocab_size is ",
                    draft_vocab_size, "; give a number of tokens such as 32768, or 0 for all");
  }
};

}  // namespace tlt::drafter
