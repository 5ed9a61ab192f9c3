// Stop strings: end a response when its text contains one of the given strings.
//
// The text comes from the caller's detokenizer (data/ implements StopString), one token at a time, so
// a stop string may span tokens. The response keeps its tokens; trimming the text is up to the
// caller.
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
  // Returns the text that is complete with this token (possibly empty); valid until the next push.
  virtual std::string_view push(int32_t token) = 0;
};

// Opens a stream for each response that has stop strings. Outlives the engine.
class StopString {
 public:
  virtual ~StopString() = default;
  virtual std::unique_ptr<TextStream> open() const = 0;
};

// Searches for stop strings in text that arrives in pieces.
class StopFinder {
 public:
  // Borrows `stop`. REQUIRES: no string is empty.
  StopFinder(std::unique_ptr<TextStream> stream, const std::vector<std::string>& stop);

  // True when the token's text completes a stop string.
  bool push(int32_t token);

 private:
  std::unique_ptr<TextStream> stream_;
  const std::vector<std::string>* stop_;
  size_t kept_bytes_ = 0;  // length of the longest stop string, minus 1
  std::string tail_;       // at most the last kept_bytes_ of the text
};

}  // namespace tlt::rollout
