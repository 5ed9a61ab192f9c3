// Drafter: proposes draft trees for sequences that decode, and learns from their tokens.
//
// A drafter may propose any tokens: the target decides every token
// (tests/invariants/speculation_never_changes_tokens). Drafters are pull-only: a request carries
// the full token sequence, and the only notification of a sequence without request is end(). Hidden
// states are the target's final ones (after its last norm) or the inputs of layers(), in its
// compute type. State t and token t + 1 form a pair, the input of an EAGLE drafter.
//
// Threading  engine thread only; no locks, no threads of its own.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "drafter/draft_tree.h"
#include "drafter/shared_uniforms.h"
#include "drafter/strategy.h"

namespace at {
class Tensor;
}

namespace tlt::drafter {

struct SequenceId {
  uint32_t prompt_id = 0;
  uint32_t sample = 0;
  auto operator<=>(const SequenceId&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct DraftRequest {
  SequenceId id;
  std::span<const int32_t> prompt;
  std::span<const int32_t> response;  // committed; the last token is the tree's root (the prompt's
                                      // last token while the response is empty)
  Strategy strategy;                  // at most verify - 1 nodes, none deeper than depth
  DraftTree* tree = nullptr;          // filled and arranged; empty when there is nothing to propose
  // Draft tokens after the response, from whose end the tree continues: only for a drafter that
  // follows_paths().
  std::span<const int32_t> path = {};
  SharedUniforms draws = {};  // of the tokens after the path
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // The name in `--speculation`: "suffix", "ngram", "eagle", "mixed".
  virtual std::string_view kind() const = 0;

  // Fills the trees. The requests are of different sequences; a sequence only ever grows from one
  // request to the next.
  virtual void propose(std::span<const DraftRequest> requests) = 0;

  // The response is finished or was cancelled; called for every sequence, requested or not.
  virtual void end(SequenceId /*id*/, std::span<const int32_t> /*response*/) {}

  // Whether the drafter uses read_prompt() and read_states().
  virtual bool reads_states() const { return false; }
  // Layers of the target whose inputs it reads, S = D for each; empty: the final states, S = D.
  virtual const std::vector<int64_t>& layers() const {
    static const std::vector<int64_t> none;
    return none;
  }
  // Rows of a prompt have gone through the target: row i of hidden [n, S] is the state of tokens[i]
  // at position + i. In order of position, in pieces of any size, all before a sample of the prompt
  // is requested. Position 0 restarts a prompt, and so does one that is not the next: then the rows
  // before it were not computed (kv/prefix_cache.h). The view is valid during the call only.
  virtual void read_prompt(uint32_t /*prompt_id*/, int32_t /*position*/,
                           const at::Tensor& /*hidden*/, std::span<const int32_t> /*tokens*/) {}
  // Called before propose() for the requested sequences and possibly others: token first + i of the
  // response was sampled from row rows[i] of hidden [T, S]. Rows arrive in order. A sequence that
  // was not requested recently, or that waited, may have gaps, including the newest row. Valid
  // during the call only.
  virtual void read_states(SequenceId /*id*/, int64_t /*first*/, const at::Tensor& /*hidden*/,
                           std::span<const int32_t> /*rows*/) {}

  // The target's weights have changed.
  virtual void new_weights() {}

  // Seconds of propose() in forward passes of a draft model, since construction.
  virtual double forward_seconds() const { return 0; }

  // Whether it accepts requests with a path.
  virtual bool follows_paths() const { return false; }

  // Memory of everything the drafter owns.
  virtual int64_t memory_bytes() const = 0;
};

}  // namespace tlt::drafter
