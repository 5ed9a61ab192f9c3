// AcceptanceProbe: how far a drafter's guesses go along sequences that the target has written: what
// the engine would accept of a chain of greedy guesses, without running the engine.
//
// Decoding is played over each sequence: from a committed token the drafter guesses ahead, on its
// own states from the second guess on; guesses are accepted as long as they are the tokens that
// stand there, and the target adds one of its own (bonus token). The sequence's last token has no
// state and so no part in it.
//
// Borrows    the network; the workers' collectives.
// Not here   trees (spec/eagle_drafter.h accepts more); one guess in expectation (draft_loss.h).
// Threading  engine thread only.
//
//   const Acceptance found = AcceptanceProbe(network, /*steps=*/8).measure(held_out, comm);
//   found.tokens_per_forward();     // 3.6: tokens per target forward, the target's own included
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/comm.h"
#include "model/draft_activations.h"
#include "model/draft_network.h"
#include "spot/draft_sample.h"

namespace tlt::spot {

struct Acceptance {
  double drafts = 0;             // chains, one for each target forward
  double tokens = 0;             // committed by them
  std::vector<double> accepted;  // accepted[k]: chains whose guess k + 1 was accepted

  double tokens_per_forward() const { return drafts > 0 ? tokens / drafts : 0; }
  double rate(size_t k) const { return drafts > 0 ? accepted[k] / drafts : 0; }
};

class AcceptanceProbe {
 public:
  // `steps`: guesses of a chain. REQUIRES: 1 <= steps <= ops::kPageSlots.
  AcceptanceProbe(const model::DraftNetwork& network, int64_t steps);

  // Over all workers; each takes its share of the samples.
  Acceptance measure(std::span<const DraftSample> samples, cluster::Comm& comm);

 private:
  // Guesses behind the token of pair `start`, all right so far.
  struct Chain {
    int64_t start = 0;
    int64_t row = 0;  // of its state in the last pass
    std::vector<ops::PageId> pages;
  };
  // For each pair of the sample: how many guesses behind its token are right.
  std::vector<int64_t> right_guesses(const DraftSample& sample);
  // Guesses 2, 3 … of chains whose first is right; states [pairs, D] are those of the pairs.
  void grow(const DraftSample& sample, const at::Tensor& states, std::vector<Chain> chains,
            std::vector<int64_t>& right);
  // Keeps the chains whose guess `step`, the best token of their state, is right.
  void keep_right(const DraftSample& sample, const at::Tensor& states, int64_t step,
                  std::vector<Chain>& chains, std::vector<int64_t>& right);
  // A chain shares the full pages before its own positions and copies the one it begins in.
  void give_pages(std::vector<Chain>& chains);
  void reserve_pages(int64_t pairs);
  std::vector<int32_t> best_tokens(const at::Tensor& states);

  const model::DraftNetwork& network_;
  const int64_t steps_;
  model::DraftActivations activations_;
  std::unique_ptr<kv::KvCache> cache_;
  std::vector<ops::PageId> own_pages_;  // of the sample's pairs; the chains' come behind them
};

}  // namespace tlt::spot
