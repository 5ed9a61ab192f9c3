// SPDX-License-Identifier: Apache-2.0
#include "rl/response_text.h"

#include <string>

namespace tlt::rl {
namespace {

class Stream final : public rollout::TextStream {
 public:
  explicit Stream(const data::Tokenizer& tokenizer) : decoder_(tokenizer) {}

  std::string_view push(int32_t token) override {
    text_ = decoder_.push(token);
    return text_;
  }

 private:
  data::StreamingDecoder decoder_;
  std::string text_;
};

}  // namespace

std::unique_ptr<rollout::TextStream> ResponseText::open() const {
  return std::make_unique<Stream>(tokenizer_);
}

}  // namespace tlt::rl
