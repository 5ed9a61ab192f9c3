// SimulatedDrafter: a drafter of a given quality, for benchmarks of models that have none: it knows
// what plain decoding gave, and is right as far as a coin says.
//
// After each right guess the next one is right with the probability that makes a whole path give
// `acceptance_length` tokens a forward pass, the bonus token included. The rest of a tree is
// filled with guesses that are wrong, of probabilities as a real drafter's.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "base/random.h"
#include "spec/drafter.h"

namespace tlt::apps {

using Truth = std::map<spec::SequenceId, std::vector<int32_t>>;

class SimulatedDrafter final : public spec::Drafter {
 public:
  // Borrows the responses. For trees of the whole depth; smaller ones give less.
  SimulatedDrafter(const Truth& truth, double acceptance_length, int64_t depth, int64_t vocabulary);

  std::string_view kind() const override { return "simulated"; }
  void propose(std::span<const spec::DraftRequest> requests) override;
  int64_t memory_bytes() const override { return 0; }

  // That a guess is right after one that is.
  double rightness() const { return rightness_; }

 private:
  void propose(const spec::DraftRequest& request);
  int32_t other_than(int32_t token);

  const Truth& truth_;
  const int64_t vocabulary_;
  const double rightness_;
  RandomStream random_;
  std::vector<int32_t> level_, next_level_;  // nodes
};

}  // namespace tlt::apps
