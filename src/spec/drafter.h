// Drafter: proposes draft trees for sequences that decode, and learns from what they become.
//
// A drafter may propose anything, even nonsense: the target decides every token
// (tests/laws/speculation_never_changes_tokens). While it is not asked, it is told nothing but
// which sequences have ended: a request brings the whole text. Hidden states are the target's final
// ones (after its last norm), or what goes into the layers() that the drafter wants to see, in its
// compute type; state t and token t + 1 are what an EAGLE drafter reads together, a pair.
//
// Threading  engine thread only; no locks, no threads of its own.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "spec/draft_tree.h"
#include "spec/known_draws.h"
#include "spec/strategy.h"

namespace at {
class Tensor;
}

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
  // Guesses behind the response, from whose end the tree goes on: only for a drafter that
  // follows_paths().
  std::span<const int32_t> path = {};
  KnownDraws draws = {};  // of what comes behind the path
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // The word of `--speculation`: "suffix", "ngram", "eagle", "mixed".
  virtual std::string_view kind() const = 0;

  // Fills the trees. The requests are of different sequences; what it was told of a sequence before
  // is the beginning of its text now.
  virtual void propose(std::span<const DraftRequest> requests) = 0;

  // The response is finished, or was cancelled: of every sequence, asked for or not.
  virtual void end(SequenceId /*id*/, std::span<const int32_t> /*response*/) {}

  // Whether read_prompt() and read_states() are for it.
  virtual bool reads_states() const { return false; }
  // S = D for each of these layers of the target; none: the final states, S = D.
  virtual const std::vector<int64_t>& layers() const {
    static const std::vector<int64_t> none;
    return none;
  }
  // Rows of a prompt have gone through the target: hidden [n, S], the state at position + i, where
  // tokens[i] stands. In order of position, in pieces of any size, all before it is asked for a
  // sample of the prompt; position 0 starts a prompt anew. The view is valid during the call only.
  virtual void read_prompt(uint32_t /*prompt_id*/, int32_t /*position*/,
                           const at::Tensor& /*hidden*/, std::span<const int32_t> /*tokens*/) {}
  // Before propose(), of the sequences it will be asked for and perhaps others: token first + i of
  // the response was drawn from row rows[i] of hidden [T, S]. In order; of one that it was not
  // asked for, or that waited, for long, some are missing, now and then the latest too. Valid
  // during the call only.
  virtual void read_states(SequenceId /*id*/, int64_t /*first*/, const at::Tensor& /*hidden*/,
                           std::span<const int32_t> /*rows*/) {}

  // The target's weights have changed.
  virtual void new_weights() {}

  // Of propose(), what went to forward passes of a network, since the drafter was made.
  virtual double forward_seconds() const { return 0; }

  // Whether a request may have a path.
  virtual bool follows_paths() const { return false; }

  // Of all the drafter holds.
  virtual int64_t memory_bytes() const = 0;
};

}  // namespace tlt::spec
