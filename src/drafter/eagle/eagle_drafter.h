// EagleDrafter ("eagle"): drafts EAGLE-2's dynamic trees with a one-layer draft model that
// continues the target's hidden states: EAGLE-1/2's or EAGLE-3's (docs/references.md).
//
// A pair is (h_t, x_{t+1}): the target's hidden states of a token, and the token sampled from them.
// The network reads a sequence's pairs into a context of its own; its output for the last one is
// the feature that the tree's root is expanded from, and a node's pair is (its parent's feature,
// its token). A node attends to the context and its own path. A prompt's pairs are read once for
// all its samples, which share the pages they fill. Draft tokens are never kept in the context:
// accepted ones come back as new pairs with the target's own states.
//
// Drafting can begin in the middle of a response: the last `window` states of a sequence are kept,
// as far as they were received. After a gap in the pairs the context restarts with those after the
// gap; without its latest pair a sequence gets no tree in that step. Positions count from the
// context's first pair, because only differences matter. A step is one pass over all new pairs and
// one pass for each level of all trees. While memory for contexts is short, some sequences get no
// tree (eagle_cache.h).
//
// Owns       states, contexts, scratch.
// Borrows    the network and through it the target; their weights may change between calls.
// Not here   the network (drafter/eagle/draft_network.h), which nodes are expanded (draft_beam.h).
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

#include "drafter/draft_beam.h"
#include "drafter/drafter.h"
#include "drafter/eagle/draft_activations.h"
#include "drafter/eagle/draft_network.h"
#include "drafter/eagle/eagle_cache.h"
#include "drafter/eagle/eagle_drafter_options.h"
#include "drafter/eagle/eagle_head.h"
#include "drafter/eagle/eagle_top_k.h"
#include "drafter/hidden_rows.h"

namespace tlt::drafter {

// Counters and times of propose(), since construction.
struct EagleStats {
  int64_t passes = 0;          // forward passes of the network
  int64_t rows_read = 0;       // pairs
  int64_t rows_drafted = 0;    // nodes expanded, roots not counted
  int64_t starts = 0;          // contexts started or restarted
  int64_t refused = 0;         // trees not drafted for lack of pages
  double forward_seconds = 0;  // of the network and the head
};

class EagleDrafter final : public Drafter {
 public:
  // InputError if kv_memory_bytes is less than a page. REQUIRES: `network` outlives this.
  EagleDrafter(const drafter::DraftNetwork& network, const EagleDrafterOptions& options);
  // Shares ownership of the network.
  EagleDrafter(const std::shared_ptr<const drafter::DraftNetwork>& network,
               const EagleDrafterOptions& options);

  std::string_view kind() const override { return "eagle"; }
  bool reads_states() const override { return true; }
  const std::vector<int64_t>& layers() const override { return network_.auxiliary_layers(); }
  void propose(std::span<const DraftRequest> requests) override;
  void end(SequenceId id, std::span<const int32_t> response) override;
  void read_prompt(uint32_t prompt_id, int32_t position, const at::Tensor& hidden,
                   std::span<const int32_t> tokens) override;
  void read_states(SequenceId id, int64_t first, const at::Tensor& hidden,
                   std::span<const int32_t> rows) override;
  void new_weights() override { head_.refresh(); }
  int64_t memory_bytes() const override;
  double forward_seconds() const override { return stats_.forward_seconds; }

  const EagleStats& stats() const { return stats_; }
  const kv::PagePool& pool() const { return cache_.pool(); }
  // The context of a sequence. REQUIRES: it was requested.
  const EagleContext& context(SequenceId id) const { return running_.at(id).context; }

 private:
  struct Prompt {
    explicit Prompt(int64_t window) : states(window) {}
    HiddenRows states;
    EagleContext context;    // of its own pairs, while several samples run
    int64_t running = 0;     // running samples that the drafter knows
    bool has_begun = false;  // a sample has been seen
    int64_t touched = 0;     // order of the last use

    bool is_done() const { return has_begun && running == 0; }
  };
  struct Sequence {
    explicit Sequence(int64_t window) : states(window) {}
    Prompt* prompt = nullptr;
    int64_t prompt_pairs = 0;
    HiddenRows states;  // the response's tokens were sampled from these
    EagleContext context;

    int64_t pairs() const { return prompt_pairs + states.count(); }
  };
  // A tree being drafted.
  struct Beam {
    const DraftRequest* request = nullptr;
    Sequence* sequence = nullptr;
    Strategy strategy;
    DraftBeam nodes;
    EagleLanes lanes;
    int64_t first_row = 0;  // row of its frontier's first node
    int64_t written = 0;    // length of each lane's tail

    int64_t rows() const { return std::ssize(nodes.frontier()); }
  };

  // Pairs to read into a context, up to `end`.
  struct Reading {
    const DraftRequest* request;
    const Sequence* sequence;
    EagleContext* context;
    int64_t end;
  };

  EagleDrafter(const drafter::DraftNetwork& network, const EagleDrafterOptions& options,
               std::shared_ptr<const drafter::DraftNetwork> owned);
  Sequence& find(SequenceId id);
  Sequence& find(const DraftRequest& request);
  // The first pair that can still be read.
  int64_t first_known(const Sequence& sequence) const;
  void evict_prompts();

  void draft(std::span<const DraftRequest> requests, int64_t share);
  void start_beams(std::span<const DraftRequest> requests, int64_t share);
  // share: pages per sequence that drafts.
  [[nodiscard]] bool try_start(Beam& beam, int64_t share);
  void restart_context(Beam& beam, int64_t pairs);
  void share_prompt(Beam& beam, int64_t pairs);
  [[nodiscard]] bool try_start_prompt(Beam& beam, int64_t pairs);
  [[nodiscard]] bool try_take_pages(Beam& beam);
  void read_prompts();
  void read_pairs();
  void add_pairs(const Reading& reading, int64_t limit);
  void add_segment(int64_t rows, int64_t position, const kv::PageId* pages);
  void add_row(int32_t token, int64_t position);
  const at::Tensor& run(const at::Tensor& features);
  void grow(const at::Tensor& hidden);
  void list_expansions();
  void choose_children(const at::Tensor& hidden);
  void choose_tokens(int64_t first, int64_t rows);
  void add_frontier(Beam& beam, const at::Tensor& hidden);

  const std::shared_ptr<const drafter::DraftNetwork> owned_;  // or null
  const drafter::DraftNetwork& network_;
  const EagleDrafterOptions options_;
  EagleHead head_;
  const int64_t head_rows_;  // R
  const int64_t columns_;    // S, of the states
  const int64_t hidden_;

  std::unordered_map<uint32_t, Prompt> prompts_;
  std::map<SequenceId, Sequence> running_;
  std::vector<HiddenRows> spare_;  // of ended sequences, for reuse
  int64_t prompt_bytes_ = 0;
  int64_t touch_ = 0;
  EagleCache cache_;

  // Scratch of propose().
  std::vector<Beam> beams_;
  size_t active_ = 0;
  ops::Batch batch_;
  struct RootRead {
    size_t beam;
    int64_t row;  // row of its last pair
  };
  std::vector<RootRead> roots_read_;   // of the current pass
  std::vector<Reading> prompts_read_;  // to read before those of the sequences
  std::vector<ops::PageCopy> copies_;  // of partly filled prompt pages, made after that
  model::RowBuffer states_;            // [T, S] of the next pass's pairs
  model::RowBuffer features_;          // [T, D] of the next pass's nodes
  model::RowBuffer roots_;             // [beams, D]
  model::RowBuffer logits_;            // [rows, R]
  drafter::DraftActivations activations_;
  struct Expansion {
    int64_t first;  // into tokens_ and probabilities_
    int64_t width;
    SharedUniforms draws;  // of the row's children
  };
  std::vector<Expansion> expansions_;  // by row
  std::vector<TopK> top_;
  std::vector<float> inverse_temperatures_;  // of top_
  std::vector<ops::TopToken> found_;         // by the device
  TopKSoftmax top_k_;
  std::vector<int32_t> tokens_;
  std::vector<float> probabilities_;

  EagleStats stats_;
};

}  // namespace tlt::drafter
