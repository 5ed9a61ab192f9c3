// MixedDrafter ("mixed"): merges the proposals of several drafters into one tree.
//
// Every drafter proposes as if it were alone, and equal paths are merged. The acceptance rate of a
// node depends on which drafters proposed it: a token that two drafters propose is accepted more
// often than one that only one of them does. So every set of drafters has its own calibration; the
// prior for probabilities a and b is 1 - (1 - a)(1 - b). A drafter that follows paths (suffix) then
// continues the most probable leaves of the others. The verify - 1 most probable nodes are kept, of
// equals the less deep.
//
// Owns       the calibrations.
// Borrows    the drafters. Their owner notifies them of sequences; this class does not.
// Threading  engine thread only; no locks; no allocation once warm.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "drafter/calibration.h"
#include "drafter/drafter.h"

namespace tlt::drafter {

class MixedDrafter final : public Drafter {
 public:
  static constexpr size_t kMostDrafters = 4;

  // Calls propose() of a drafter, given by its index; false: the drafter failed.
  using Ask = std::function<bool(size_t drafter, std::span<const DraftRequest> requests)>;
  // REQUIRES: at most kMostDrafters, which outlive this.
  MixedDrafter(std::vector<Drafter*> drafters, Ask ask);

  std::string_view kind() const override { return "mixed"; }
  void propose(std::span<const DraftRequest> requests) override;
  int64_t memory_bytes() const override;

  // Learns from the verified trees, as proposed or pruned.
  void record(std::span<const VerifiedTree> trees);

  nlohmann::json save() const;
  void restore(const nlohmann::json& state);

  // Bit of NodeOrigin::drafters, in addition to the drafter's own: it continued a path of others.
  static constexpr uint32_t kFollowed = 1u << 31;
  // The calibrated acceptance probability of a node of this origin.
  double corrected(NodeOrigin origin) const;

 private:
  struct Node {  // of the mixed tree being built
    int32_t token = 0;
    int32_t parent = 0;
    double miss = 1;  // probability that all its drafters are wrong
    uint32_t drafters = 0;
  };

  size_t calibration_of(uint32_t drafters) const;
  void propose_all(std::span<const DraftRequest> requests);
  void merge(const DraftTree& tree, size_t drafter);
  int32_t find(int32_t parent, int32_t token) const;
  void fill(DraftTree& tree);
  void follow(const DraftRequest& request, size_t drafter);
  // The most probable leaf that the drafter neither proposed nor continued; kNone when no leaf is
  // probable enough.
  int32_t find_leaf(const DraftRequest& request, size_t drafter);
  void graft(int32_t leaf, size_t drafter, DraftTree& tree);

  const std::vector<Drafter*> drafters_;
  const Ask propose_;
  std::vector<Calibration> calibrations_;  // [set of drafters]; the last: continuations

  // Scratch of propose().
  std::vector<DraftRequest> requests_;
  std::vector<std::vector<DraftTree>> trees_;  // [drafter, request]
  std::vector<Node> nodes_;
  std::vector<int32_t> place_;  // node of the mixed tree, by the drafter's node
  std::vector<bool> is_inner_;  // has a child, or was continued
  std::vector<int32_t> path_;
  DraftTree continuation_;
};

}  // namespace tlt::drafter
