// SuffixHistory: the finished responses of each prompt: their tokens and their policy's version.
//
// A response takes four bytes per token and is indexed again when its prompt returns
// (drafter/suffix/suffix_index.h), so the same memory holds twelve times as many responses as an
// index would.
//
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

namespace tlt::drafter {

class SuffixHistory {
 public:
  struct Response {
    std::vector<int32_t> tokens;
    int64_t policy = 0;  // version of the policy that generated it
    bool operator==(const Response&) const = default;
  };
  using Responses = std::vector<Response>;

  // Keeps this many responses of each prompt, the latest.
  explicit SuffixHistory(int64_t responses_per_prompt) : most_(responses_per_prompt) {}

  // Adds a response; the prompt becomes the newest.
  void add(uint32_t prompt_id, std::span<const int32_t> response, int64_t policy);

  // Oldest first; empty for an unknown prompt.
  const Responses& responses(uint32_t prompt_id) const;

  // Removes the prompt whose last response is the oldest; false when there is none.
  bool forget_oldest();

  int64_t memory_bytes() const { return memory_bytes_; }

 private:
  struct Prompt {
    uint32_t id = 0;
    Responses responses;
  };

  int64_t most_ = 0;
  std::list<Prompt> prompts_;  // oldest first
  std::unordered_map<uint32_t, std::list<Prompt>::iterator> by_id_;
  int64_t memory_bytes_ = 0;
};

}  // namespace tlt::drafter
