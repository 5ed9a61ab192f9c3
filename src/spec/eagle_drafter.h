// EagleDrafter ("eagle"): drafts EAGLE-2's dynamic trees with a network of one layer that continues
// the target's hidden states, EAGLE-1/2's or EAGLE-3's (docs/references.md).
//
// A pair is (h_t, x_{t+1}): what the network is shown of the target, and the token drawn there. The
// network reads a sequence's pairs into a context of its own; what it reads last is the feature
// that the tree's root is expanded from, and a node's pair is (its parent's feature, its token). A
// node sees the context and its own path. A prompt's pairs are read once for all its samples, which
// share the pages that they fill. The drafter's guesses are never kept: what was accepted comes
// back as new pairs with the target's own states.
//
// Drafting can begin in mid-response: of a sequence's states the last `window` are kept, as far as
// it was told of them. One of which more pairs were missed starts its context anew with those that
// are known; one whose latest pair was missed has no tree in that step. Positions count from the
// context's first pair: only differences matter. A step is one pass over all the pairs that came up
// since the last step and one for each level of all trees; while memory for contexts is short, some
// sequences have no tree (eagle_cache.h).
//
// Owns       states, contexts, scratch.
// Borrows    the network and through it the target; their weights may change between calls.
// Not here   the network (model/draft_network.h), which nodes are expanded (draft_beam.h).
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

#include "model/draft_activations.h"
#include "model/draft_network.h"
#include "spec/draft_beam.h"
#include "spec/drafter.h"
#include "spec/eagle_cache.h"
#include "spec/eagle_drafter_options.h"
#include "spec/eagle_head.h"
#include "spec/eagle_states.h"
#include "spec/eagle_top_k.h"

namespace tlt::spec {

// Where the time of propose() went, since the drafter was made.
struct EagleStats {
  int64_t passes = 0;        // of the network
  int64_t rows_read = 0;     // pairs
  int64_t rows_drafted = 0;  // nodes expanded, roots not counted
  int64_t starts = 0;        // contexts that were begun, or begun anew
  int64_t refused = 0;       // trees for which there was no memory
  double network_seconds = 0;
  double head_seconds = 0;
  double top_k_seconds = 0;
  double seconds = 0;  // of all; the rest is beams, tables and copies of states
};

class EagleDrafter final : public Drafter {
 public:
  // InputError when kv_memory_bytes is less than a page. REQUIRES: `network` outlives this.
  EagleDrafter(const model::DraftNetwork& network, const EagleDrafterOptions& options);
  // The same, and keeps the network.
  EagleDrafter(std::shared_ptr<const model::DraftNetwork> network,
               const EagleDrafterOptions& options);

  std::string_view kind() const override { return "eagle"; }
  bool reads_states() const override { return true; }
  const std::vector<int64_t>& layers() const override { return network_.shown_layers(); }
  void propose(std::span<const DraftRequest> requests) override;
  void end(SequenceId id, std::span<const int32_t> response) override;
  void read_prompt(uint32_t prompt_id, int32_t position, const at::Tensor& hidden,
                   std::span<const int32_t> tokens) override;
  void read_states(SequenceId id, int64_t first, const at::Tensor& hidden,
                   std::span<const int32_t> rows) override;
  void new_weights() override { head_.refresh(); }
  int64_t memory_bytes() const override;
  double forward_seconds() const override { return stats_.network_seconds + stats_.head_seconds; }

  const EagleStats& stats() const { return stats_; }
  const kv::PagePool& pool() const { return cache_.pool(); }
  // What has been read of a sequence. REQUIRES: it was asked for.
  const EagleContext& context(SequenceId id) const { return running_.at(id).context; }

 private:
  struct Prompt {
    explicit Prompt(int64_t window) : states(window) {}
    EagleStates states;
    EagleContext context;    // of its own pairs, while several samples run
    int64_t running = 0;     // samples that it was told of
    bool has_begun = false;  // one of them
    int64_t touched = 0;     // the higher the later

    bool is_done() const { return has_begun && running == 0; }
  };
  struct Sequence {
    explicit Sequence(int64_t window) : states(window) {}
    Prompt* prompt = nullptr;
    int64_t prompt_pairs = 0;
    EagleStates states;  // that the tokens of the response were drawn from
    EagleContext context;

    int64_t pairs() const { return prompt_pairs + states.count(); }
  };
  // A tree in the making.
  struct Beam {
    const DraftRequest* request = nullptr;
    Sequence* sequence = nullptr;
    Strategy strategy;
    DraftBeam nodes;
    EagleLanes lanes;
    int64_t first_row = 0;  // of its frontier
    int64_t written = 0;    // positions of each lane's tail

    int64_t rows() const { return std::ssize(nodes.frontier()); }
  };

  // Pairs that are read into a context, up to `end`.
  struct Reading {
    const DraftRequest* request;
    const Sequence* sequence;
    EagleContext* context;
    int64_t end;
  };

  EagleDrafter(const model::DraftNetwork& network, const EagleDrafterOptions& options,
               std::shared_ptr<const model::DraftNetwork> owned);
  Sequence& find(SequenceId id);
  Sequence& find(const DraftRequest& request);
  // The pairs that can still be read: from here on.
  int64_t first_known(const Sequence& sequence) const;
  void forget_prompts();

  void draft(std::span<const DraftRequest> requests, int64_t share);
  void start_beams(std::span<const DraftRequest> requests, int64_t share);
  // `share`: pages for each sequence that drafts.
  [[nodiscard]] bool try_start(Beam& beam, int64_t share);
  void start_anew(Beam& beam, int64_t pairs);
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

  const std::shared_ptr<const model::DraftNetwork> owned_;  // or null
  const model::DraftNetwork& network_;
  const EagleDrafterOptions options_;
  EagleHead head_;
  const int64_t head_rows_;  // R
  const int64_t columns_;    // S, of the states
  const int64_t hidden_;

  std::unordered_map<uint32_t, Prompt> prompts_;
  std::map<SequenceId, Sequence> running_;
  std::vector<EagleStates> spare_;  // of ended sequences, their memory warm
  int64_t prompt_bytes_ = 0;
  int64_t touch_ = 0;
  EagleCache cache_;

  // Of one call of propose.
  std::vector<Beam> beams_;
  size_t active_ = 0;
  ops::Batch batch_;
  struct RootRead {
    size_t beam;
    int64_t row;  // of its last pair
  };
  std::vector<RootRead> roots_read_;   // by the pass
  std::vector<Reading> prompts_read_;  // that are read before the sequences'
  struct Copy {
    kv::PageId from, to;
  };
  std::vector<Copy> copies_;   // after that: of pages that a prompt fills in part
  model::RowBuffer states_;    // [T, S] of the pairs that the next pass reads
  model::RowBuffer features_;  // [T, D] of the nodes that it reads
  model::RowBuffer roots_;     // [beams, D]
  model::RowBuffer logits_;    // [rows, R]
  model::DraftActivations activations_;
  struct Expansion {
    int64_t first;  // into tokens_ and probabilities_
    int64_t width;
    KnownDraws draws;  // of the row's children
  };
  std::vector<Expansion> expansions_;  // by row
  std::vector<TopK> top_;
  TopKSoftmax top_k_;
  std::vector<int32_t> tokens_;
  std::vector<float> probabilities_;

  EagleStats stats_;
};

}  // namespace tlt::spec
