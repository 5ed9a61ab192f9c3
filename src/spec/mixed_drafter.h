// MixedDrafter ("mixed"): the guesses of several drafters in one tree.
//
// Each drafter is asked as if it were alone, and equal paths become one. What a node's probability
// is worth depends on who guessed it: a token that two drafters name is right more often than one
// that the other would have known better. So every set of guessers has a calibration of its own;
// what several say, a and b, is taken for 1 - (1 - a)(1 - b) to begin with. A drafter that follows
// paths (suffix) then goes on below the most probable leaves of the others. Of all, the verify - 1
// most probable nodes are kept, of equals the less deep.
//
// Owns       the calibrations.
// Borrows    the drafters. Their owner tells them of sequences; this one is told nothing.
// Threading  engine thread only; no locks; no allocation once warm.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "spec/calibration.h"
#include "spec/chooser.h"
#include "spec/drafter.h"

namespace tlt::spec {

class MixedDrafter final : public Drafter {
 public:
  static constexpr size_t kMostDrafters = 4;

  // How a drafter, by its place in the list, is asked to propose; false: it could not.
  using Ask = std::function<bool(size_t drafter, std::span<const DraftRequest> requests)>;
  // REQUIRES: at most kMostDrafters, which outlive this.
  MixedDrafter(std::vector<Drafter*> drafters, Ask ask);

  std::string_view kind() const override { return "mixed"; }
  void propose(std::span<const DraftRequest> requests) override;
  int64_t memory_bytes() const override;

  // The trees that were verified, as proposed or cut.
  void record(std::span<const VerifiedTree> trees);

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);

  // Bit of Guess::guessers, beside the drafter's own: it was asked how a path of others goes on.
  static constexpr uint32_t kFollowed = 1u << 31;
  // What nodes of these guessers, who claim so much, are taken for.
  double corrected(Guess guess) const;

 private:
  struct Node {  // of the mixed tree in the making
    int32_t token = 0;
    int32_t parent = 0;
    double miss = 1;  // all who guessed it are wrong
    uint32_t guessers = 0;
  };

  size_t calibration_of(uint32_t guessers) const;
  void ask_all(std::span<const DraftRequest> requests);
  void merge(const DraftTree& tree, size_t drafter);
  int32_t find(int32_t parent, int32_t token) const;
  void fill(DraftTree& tree);
  void follow(const DraftRequest& request, size_t drafter);
  // The most probable leaf that the drafter neither guessed nor followed; kNone when none is
  // likely.
  int32_t find_leaf(const DraftRequest& request, size_t drafter);
  void graft(int32_t leaf, size_t drafter, DraftTree& tree);

  const std::vector<Drafter*> drafters_;
  const Ask ask_;
  std::vector<Calibration> calibrations_;  // [set of guessers]; the last: of those who followed

  // Of one call of propose.
  std::vector<DraftRequest> requests_;
  std::vector<std::vector<DraftTree>> trees_;  // [drafter, request]
  std::vector<Node> nodes_;
  std::vector<int32_t> place_;  // of a drafter's node in the mixed tree
  std::vector<bool> is_inner_;  // has a child, or was followed
  std::vector<int32_t> path_;
  DraftTree continuation_;
};

}  // namespace tlt::spec
