// SuffixDrafter ("suffix"): proposes the continuation of the longest matching suffix in the
// response, its prompt, its group, or earlier responses to the prompt (SuffixDecoding).
//
// A prompt with running requests has an index (drafter/suffix/suffix_index.h) of the prompt, its
// requested sequences, which match each other's tokens, and its finished responses; when the last
// of these sequences ends, only the tokens of responses are kept (drafter/suffix/suffix_history.h).
// A response of an older policy has half the weight.
//
// Owns       the tokens; indexes of finished prompts are reused.
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/options.h"
#include "drafter/drafter.h"
#include "drafter/suffix/suffix_history.h"
#include "drafter/suffix/suffix_index.h"
#include "drafter/suffix/suffix_tree.h"

namespace tlt::drafter {

struct SuffixOptions {
  // Not options: the tuner compares the drafter with no speculation, so a poor value costs little,
  // and a better one for all prompts is not known.
  int64_t min_match = 1;          // shortest suffix that must match, in tokens
  double min_probability = 0.05;  // less likely draft tokens seldom pay for their verification
  int64_t history = 16;  // responses of earlier epochs kept per prompt; memory_bytes bounds
  int64_t memory_bytes = int64_t{1} << 30;  // of texts and their index: part of
                                            // speculative.memory_bytes

  // InputError names the field and what is accepted.
  void check() const;
};

class SuffixDrafter final : public Drafter {
 public:
  explicit SuffixDrafter(const SuffixOptions& options);

  std::string_view kind() const override { return "suffix"; }
  void propose(std::span<const DraftRequest> requests) override;
  void end(SequenceId id, std::span<const int32_t> response) override;
  void new_weights() override { ++policy_; }
  bool follows_paths() const override { return true; }

  // At most options.memory_bytes, unless the running sequences alone need more.
  int64_t memory_bytes() const override;

 private:
  struct Prompt {  // one with running sequences
    explicit Prompt(int64_t min_match) : index(min_match) {}
    SuffixIndex index;
    int64_t running = 0;
    std::vector<int32_t> last_tokens;  // as many as the longest match
  };
  struct Sequence {
    Prompt* prompt = nullptr;
    int32_t text = SuffixIndex::kNoText;
    size_t read = 0;  // tokens of the response read so far
  };

  void read(const DraftRequest& request);
  void read(Sequence& sequence, std::span<const int32_t> response);
  Prompt& prompt_of(uint32_t prompt_id, std::span<const int32_t> tokens);
  std::span<const SuffixHistory::Response> history_within_memory(uint32_t prompt_id) const;
  void forget(uint32_t prompt_id);
  void keep_within_memory();

  const SuffixOptions options_;
  std::unordered_map<uint32_t, std::unique_ptr<Prompt>> prompts_;
  std::map<SequenceId, Sequence> running_;
  std::vector<std::unique_ptr<Prompt>> spare_;  // cleared, for reuse
  SuffixHistory history_;
  int64_t policy_ = 0;  // version of the target's weights
  SuffixTree tree_;
};

}  // namespace tlt::drafter
