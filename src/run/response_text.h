// ResponseText: decodes responses to text while they are generated, to find stop strings.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "rollout/stop_string.h"
#include "tokenizer/tokenizer.h"

namespace tlt::run {

class ResponseText final : public rollout::StopString {
 public:
  explicit ResponseText(tokenizer::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  std::unique_ptr<rollout::TextStream> open() const override;

 private:
  tokenizer::Tokenizer tokenizer_;
};

}  // namespace tlt::run
