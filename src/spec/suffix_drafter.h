// SuffixDrafter ("suffix"): a response goes on as it, its prompt, its siblings or the same prompt's
// responses of earlier epochs did after the same tokens.
//
// While a prompt has running sequences it has an index (spec/suffix_index.h) of the prompt, its
// responses, siblings seeing each other's tokens as they are committed, and its history; when the
// last one ends, only the tokens are kept (spec/suffix_history.h). A response of an earlier epoch
// counts half: it is an older policy's.
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
    v(min_match, "min_match", Affects::kSpeed,
      "Fewest equal last tokens for which another text is followed.");
    v(min_probability, "min_probability", Affects::kSpeed,
      "Guesses that are less likely are not verified.");
    v(history, "history", Affects::kSpeed, "Responses of earlier epochs remembered a prompt.");
    v(memory_bytes, "memory_bytes", Affects::kSpeed,
      "What texts and their index may take; the prompts not seen for longest are forgotten.");
  }

  // InputError names the field and what is accepted.
  void check() const;
};

class SuffixDrafter final : public Drafter {
 public:
  explicit SuffixDrafter(const SuffixOptions& options);

  std::string_view kind() const override { return "suffix"; }
  void begin(SequenceId id, std::span<const int32_t> prompt) override;
  void commit(SequenceId id, std::span<const int32_t> tokens) override;
  void end(SequenceId id) override;
  void propose(std::span<const DraftRequest> requests) override;
  bool follows_paths() const override { return true; }

  // At most the option's, unless the running sequences alone need more.
  int64_t memory_bytes() const override;

 private:
  struct Prompt {  // one with running sequences
    explicit Prompt(int64_t min_match) : index(min_match) {}
    SuffixIndex index;
    int64_t running = 0;
    std::vector<int32_t> ended;  // texts, in the order of ending
  };
  struct Sequence {
    Prompt* prompt = nullptr;
    int32_t text = SuffixIndex::kNoText;
  };

  Prompt& prompt_of(uint32_t prompt_id, std::span<const int32_t> tokens);
  std::span<const std::vector<int32_t>> history_with_room(uint32_t prompt_id) const;
  void remember(uint32_t prompt_id, const Prompt& prompt);
  void keep_within_memory();

  const SuffixOptions options_;
  std::unordered_map<uint32_t, std::unique_ptr<Prompt>> prompts_;
  std::map<SequenceId, Sequence> running_;
  std::vector<std::unique_ptr<Prompt>> spare_;  // cleared, their memory warm
  SuffixHistory history_;
  SuffixTree tree_;
};

}  // namespace tlt::spec
