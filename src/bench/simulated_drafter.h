// SimulatedDrafter: a drafter with a given acceptance length, for benchmarks of models without a
// draft model. It knows the responses of non-speculative decoding and proposes their tokens at
// random.
//
// After an accepted draft token the next one is accepted with the probability that gives a full
// path `acceptance_length` (bonus token included). The other nodes of a tree are rejected draft
// tokens, with probabilities like those of a real drafter.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "base/random.h"
#include "drafter/drafter.h"

namespace tlt::bench {

using Truth = std::map<drafter::SequenceId, std::vector<int32_t>>;

class SimulatedDrafter final : public drafter::Drafter {
 public:
  // Borrows the responses. `acceptance_length` holds for trees of `depth`; smaller ones have less.
  SimulatedDrafter(const Truth& truth, double acceptance_length, int64_t depth, int64_t vocabulary);

  std::string_view kind() const override { return "simulated"; }
  void propose(std::span<const drafter::DraftRequest> requests) override;
  int64_t memory_bytes() const override { return 0; }

  // Probability that a draft token is accepted if its parent is.
  double acceptance() const { return acceptance_; }

 private:
  void propose(const drafter::DraftRequest& request);
  int32_t other_than(int32_t token);

  const Truth& truth_;
  const int64_t vocabulary_;
  const double acceptance_;
  RandomStream random_;
  std::vector<int32_t> level_, next_level_;  // nodes
};

}  // namespace tlt::bench
