// OracleDrafter: knows the responses of non-speculative decoding and mixes them with random tokens:
// trees of every shape, in which the accepted path can be and end anywhere.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "drafter/drafter.h"
#include "tests/support/rollouts.h"

namespace tlt::tests {

class OracleDrafter final : public drafter::Drafter {
 public:
  // `truth`: the responses of non-speculative decoding; `acceptance`: probability that the accepted
  // path continues.
  OracleDrafter(const Rollouts& truth, int64_t vocabulary, double acceptance, uint64_t seed)
      : truth_(truth), vocabulary_(vocabulary), acceptance_(acceptance), random_(seed, {}) {}

  std::string_view kind() const override { return "oracle"; }
  int64_t memory_bytes() const override { return 0; }

  void propose(std::span<const drafter::DraftRequest> requests) override {
    for (const drafter::DraftRequest& request : requests) propose(request);
  }

 private:
  void propose(const drafter::DraftRequest& request) {
    const auto& tokens = truth_.at({request.id.prompt_id, request.id.sample}).tokens;
    drafter::DraftTree& tree = *request.tree;
    const auto wanted =
        static_cast<int32_t>(random_.below(static_cast<uint64_t>(request.strategy.verify)));
    int32_t accepted =
        drafter::DraftTree::kRoot;  // last node of the accepted path; kNone: it has ended
    size_t next = request.response.size();
    for (int tries = 0; tree.size() < wanted && tries < 200; ++tries) {
      int32_t parent =
          static_cast<int32_t>(random_.below(static_cast<uint64_t>(tree.size()) + 1)) - 1;
      auto token = static_cast<int32_t>(random_.below(static_cast<uint64_t>(vocabulary_)));
      const bool is_accepted = accepted != drafter::DraftTree::kNone && next < tokens.size() &&
                               random_.uniform() < acceptance_;
      if (is_accepted) parent = accepted, token = tokens[next];
      const int32_t depth = parent == drafter::DraftTree::kRoot ? 0 : tree[parent].depth;
      if (depth == request.strategy.depth) continue;
      int32_t node = tree.find_child(parent, token);
      if (node == drafter::DraftTree::kNone)
        node = tree.add(parent, token, static_cast<float>(random_.uniform()));
      if (is_accepted) accepted = node, ++next;
    }
    tree.arrange();
  }

  const Rollouts& truth_;
  const int64_t vocabulary_;
  const double acceptance_;
  RandomStream random_;
};

}  // namespace tlt::tests
