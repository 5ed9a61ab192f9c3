// SuffixDrafter ("suffix"): a response goes on as it, its prompt, its siblings or the same prompt's
// earlier responses did after the same tokens.
//
// A prompt that it is asked for has an index (spec/suffix_index.h) of the prompt, the sequences it
// was asked for, which see each other's tokens, and the responses that have ended; when the last
// of these sequences ends, only the tokens of responses are kept (spec/suffix_history.h). An older
// policy's response counts half.
//
// Owns       the texts; indexes of finished prompts are used again.
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
#include "spec/drafter.h"
#include "spec/suffix_history.h"
#include "spec/suffix_index.h"
#include "spec/suffix_tree.h"

namespace tlt::spec {

struct SuffixOptions {
  int64_t min_match = 1;
  double min_probability = 0.05;
  int64_t history = 16;
  int64_t memory_bytes = int64_t{1} << 30;

  void visit(auto& v) {
    v(min_match, "min_match", Affects::kSpeed, "Shortest suffix that must match, in tokens.");
    v(min_probability, "min_probability", Affects::kSpeed,
      "Draft tokens less likely than this are not verified.");
    v(history, "history", Affects::kSpeed, "Responses of earlier epochs kept per prompt.");
    v(memory_bytes, "memory_bytes", Affects::kSpeed,
      "Memory of texts and their index; the prompts not seen for longest are evicted.");
  }

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

  // At most the option's, unless the running sequences alone need more.
  int64_t memory_bytes() const override;

 private:
  struct Prompt {  // one with running sequences
    explicit Prompt(int64_t min_match) : index(min_match) {}
    SuffixIndex index;
    int64_t running = 0;
    std::vector<int32_t> last_tokens;  // as many as a match is long
  };
  struct Sequence {
    Prompt* prompt = nullptr;
    int32_t text = SuffixIndex::kNoText;
    size_t read = 0;  // tokens of the response
  };

  void read(const DraftRequest& request);
  void read(Sequence& sequence, std::span<const int32_t> response);
  Prompt& prompt_of(uint32_t prompt_id, std::span<const int32_t> tokens);
  std::span<const SuffixHistory::Response> history_with_room(uint32_t prompt_id) const;
  void forget(uint32_t prompt_id);
  void keep_within_memory();

  const SuffixOptions options_;
  std::unordered_map<uint32_t, std::unique_ptr<Prompt>> prompts_;
  std::map<SequenceId, Sequence> running_;
  std::vector<std::unique_ptr<Prompt>> spare_;  // cleared, their memory warm
  SuffixHistory history_;
  int64_t policy_ = 0;  // counts the target's weights
  SuffixTree tree_;
};

}  // namespace tlt::spec
