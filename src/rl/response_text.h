// ResponseText: decodes responses to text while they are generated, to find stop strings.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "data/tokenizer.h"
#include "rollout/stop_string.h"

namespace tlt::rl {

class ResponseText final : public rollout::StopString {
 public:
  explicit ResponseText(data::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  std::unique_ptr<rollout::TextStream> open() const override;

 private:
  data::Tokenizer tokenizer_;
};

}  // namespace tlt::rl
