// AcceptanceProbe: measures the acceptance length of a draft model on sequences that the target has
// generated: what the engine would accept of greedy draft chains, without running the engine.
//
// It replays decoding over each sequence: from a committed token the draft model drafts a chain,
// from the second draft token on with its own states as input. Draft tokens are accepted while they
// equal the sequence's tokens, and the target adds a bonus token. The sequence's last token has no
// state and is not used.
//
// Borrows    the network; the workers' collectives.
// Not here   draft trees (drafter/eagle/eagle_drafter.h); expected acceptance of one token
//            (draft_loss.h).
// Threading  engine thread only.
//
//   const Acceptance found = AcceptanceProbe(network, /*steps=*/8).measure(held_out, comm);
//   found.tokens_per_forward();     // 3.6: the acceptance length, bonus token included
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/comm.h"
#include "drafter/eagle/draft_activations.h"
#include "drafter/eagle/draft_network.h"
#include "drafter_training/draft_sample.h"

namespace tlt::drafter_training {

struct Acceptance {
  double drafts = 0;             // chains, one per target forward
  double tokens = 0;             // committed tokens, bonus tokens included
  std::vector<double> accepted;  // accepted[k]: chains with draft token k + 1 accepted

  double tokens_per_forward() const { return drafts > 0 ? tokens / drafts : 0; }
  double rate(size_t k) const { return drafts > 0 ? accepted[k] / drafts : 0; }
};

class AcceptanceProbe {
 public:
  // `steps`: draft tokens of a chain. REQUIRES: 1 <= steps <= ops::kPageSlots.
  AcceptanceProbe(const drafter::DraftNetwork& network, int64_t steps);

  // Acceptance over all workers; each measures its share of the samples.
  Acceptance measure(std::span<const DraftSample> samples, cluster::Comm& comm);

 private:
  // The draft tokens after the token of pair `start`; all accepted so far.
  struct Chain {
    int64_t start = 0;
    int64_t row = 0;  // row of its state in the last pass
    std::vector<ops::PageId> pages;
  };
  // For each pair of the sample: how many draft tokens after its token are accepted.
  std::vector<int64_t> accepted_tokens(const DraftSample& sample);
  // Drafts tokens 2, 3 … of chains whose first is accepted; states [pairs, D] are the pairs' own.
  void extend(const DraftSample& sample, const at::Tensor& states, std::vector<Chain> chains,
              std::vector<int64_t>& right);
  // Keeps the chains whose draft token `step`, the best token of their state, is accepted.
  void keep_accepted(const DraftSample& sample, const at::Tensor& states, int64_t step,
                     std::vector<Chain>& chains, std::vector<int64_t>& right);
  // Assigns pages: a chain shares the full pages before its own positions and copies the page it
  // begins in.
  void give_pages(std::vector<Chain>& chains);
  void reserve_pages(int64_t pairs);
  std::vector<int32_t> best_tokens(const at::Tensor& states);

  const drafter::DraftNetwork& network_;
  const int64_t steps_;
  drafter::DraftActivations activations_;
  std::unique_ptr<kv::KvCache> cache_;
  std::vector<ops::PageId> own_pages_;  // of the sample's pairs; the chains' pages follow
};

}  // namespace tlt::drafter_training
