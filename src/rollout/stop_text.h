// Stop texts: ends a response when its text contains one of the given strings.
//
// The text comes from the caller's detokenizer (data/ implements StopText), a token at a time, so a
// stop text may begin in one token and end in another. Trimming the text is the caller's: the
// response keeps its tokens.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::rollout {

// The text of one response as it grows.
class TextStream {
 public:
  virtual ~TextStream() = default;
  // The text that became certain with this token (perhaps none yet); valid until the next push.
  virtual std::string_view push(int32_t token) = 0;
};

// Opens a stream for each response that has stop texts. Outlives the engine.
class StopText {
 public:
  virtual ~StopText() = default;
  virtual std::unique_ptr<TextStream> open() const = 0;
};

// Looks for stop texts in a text that comes in pieces.
class StopFinder {
 public:
  // Borrows `stop`. REQUIRES: no string is empty.
  StopFinder(std::unique_ptr<TextStream> stream, const std::vector<std::string>& stop);

  // True when the token's text completes a stop text.
  bool push(int32_t token);

 private:
  std::unique_ptr<TextStream> stream_;
  const std::vector<std::string>* stop_;
  size_t kept_bytes_ = 0;  // the longest stop text less one byte
  std::string tail_;       // the last kept_bytes_ of the text, or less
};

}  // namespace tlt::rollout
