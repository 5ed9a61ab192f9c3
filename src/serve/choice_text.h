// ChoiceText: the text of a response as it grows: without its stop token, up to a stop string, and
// without special tokens unless they are kept.
//
// Text that may still become part of a stop string or of a character is held back. The pieces
// together are the same whatever pieces the tokens arrive in.
//
// Threading  one thread.
//
//   ChoiceText text({.tokenizer = tokenizer, .stop = sampling.stop});
//   text.push(tokens, /*finish=*/std::nullopt);     // the text that is final now
//   text.push(last_tokens, FinishReason::kStop);    // the rest
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rollout/request.h"
#include "tokenizer/tokenizer.h"

namespace tlt::serve {

// Where a text ends.
struct TextRule {
  const tokenizer::Tokenizer& tokenizer;
  std::vector<int32_t> stop_tokens;  // not part of the text if a response ends with one
  std::vector<std::string> stop;     // the text ends before the first of them
  bool skips_special = true;
};

class ChoiceText {
 public:
  // Borrows the rule.
  explicit ChoiceText(const TextRule& rule);

  // `finish` is set with the response's last tokens.
  std::string push(std::span<const int32_t> tokens, std::optional<rollout::FinishReason> finish);

 private:
  std::string release(bool is_last);

  const TextRule& rule_;
  tokenizer::StreamingDecoder decoder_;
  std::string held_;       // decoded, but not returned yet
  bool is_ended_ = false;  // a stop string was found
};

}  // namespace tlt::serve
