// SPDX-License-Identifier: Apache-2.0
#include "run/response_text.h"

#include <string>

namespace tlt::run {
namespace {

class Stream final : public rollout::TextStream {
 public:
  explicit Stream(const tokenizer::Tokenizer& tokenizer) : decoder_(tokenizer) {}

  std::string_view push(int32_t token) override {
    text_ = decoder_.push(token);
    return text_;
  }

 private:
  tokenizer::StreamingDecoder decoder_;
  std::string text_;
};

}  // namespace

std::unique_ptr<rollout::TextStream> ResponseText::open() const {
  return std::make_unique<Stream>(tokenizer_);
}

}  // namespace tlt::run
