// SuffixHistory: the responses that have ended, by prompt: their tokens and how old they are.
//
// A response costs four bytes a token and is indexed again when its prompt comes back
// (spec/suffix_index.h), so the same memory remembers twelve times as much as a history kept as an
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

namespace tlt::spec {

class SuffixHistory {
 public:
  struct Response {
    std::vector<int32_t> tokens;
    int64_t policy = 0;  // which one's it is
    bool operator==(const Response&) const = default;
  };
  using Responses = std::vector<Response>;

  // Keeps the last so many of each prompt.
  explicit SuffixHistory(int64_t responses_per_prompt) : most_(responses_per_prompt) {}

  // The prompt becomes the newest.
  void add(uint32_t prompt_id, std::span<const int32_t> response, int64_t policy);

  // Oldest first; empty for an unknown prompt.
  const Responses& responses(uint32_t prompt_id) const;

  // Forgets the prompt that was not added to for longest; false when there is none.
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

}  // namespace tlt::spec
