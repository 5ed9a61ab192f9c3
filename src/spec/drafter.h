// Drafter: proposes draft trees for sequences that decode, and learns from what they become.
//
// A drafter may propose anything, even nonsense: the target decides every token
// (tests/laws/speculation_never_changes_tokens). It is told of every sequence: begin, then commit
// after each engine step that gave it tokens, then end. A preempted sequence stays; only its keys
// and values go.
//
// Threading  engine thread only; no locks, no threads of its own.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "spec/draft_tree.h"
#include "spec/strategy.h"

namespace tlt::spec {

struct SequenceId {
  uint32_t prompt_id = 0;
  uint32_t sample = 0;
  auto operator<=>(const SequenceId&) const = default;
};

struct DraftRequest {
  SequenceId id;
  std::span<const int32_t> prompt;
  std::span<const int32_t> response;  // committed; the last one is the tree's root (the prompt's
                                      // last token while the response is empty)
  Strategy strategy;                  // at most verify - 1 nodes, none deeper than depth
  DraftTree* tree = nullptr;          // filled and arranged; left empty when there is no good guess
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // The word of `--speculation`: "suffix", "ngram", "eagle", "mixed".
  virtual std::string_view kind() const = 0;

  virtual void begin(SequenceId id, std::span<const int32_t> prompt) = 0;
  // `tokens` follow the ones committed before.
  virtual void commit(SequenceId id, std::span<const int32_t> tokens) = 0;
  virtual void end(SequenceId id) = 0;

  // Fills the trees. The requests are of different sequences, all begun.
  virtual void propose(std::span<const DraftRequest> requests) = 0;

  // Of all the drafter holds.
  virtual int64_t memory_bytes() const = 0;
};

}  // namespace tlt::spec
