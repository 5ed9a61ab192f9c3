// A drafter that knows what plain decoding gave, and mixes it with nonsense: trees of every shape,
// whose right path lies anywhere in them and ends anywhere.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spec/drafter.h"
#include "tests/support/rollouts.h"

namespace tlt::tests {

class OracleDrafter final : public spec::Drafter {
 public:
  // `truth`: the responses of plain decoding; `rightness`: how often the right path goes on.
  OracleDrafter(const Rollouts& truth, int64_t vocabulary, double rightness, uint64_t seed)
      : truth_(truth), vocabulary_(vocabulary), rightness_(rightness), random_(seed, {}) {}

  std::string_view kind() const override { return "oracle"; }
  int64_t memory_bytes() const override { return 0; }

  void propose(std::span<const spec::DraftRequest> requests) override {
    for (const spec::DraftRequest& request : requests) propose(request);
  }

 private:
  void propose(const spec::DraftRequest& request) {
    const auto& tokens = truth_.at({request.id.prompt_id, request.id.sample}).tokens;
    spec::DraftTree& tree = *request.tree;
    const auto wanted =
        static_cast<int32_t>(random_.below(static_cast<uint64_t>(request.strategy.verify)));
    int32_t right = spec::DraftTree::kRoot;  // the last node of the right path; kNone: it has ended
    size_t next = request.response.size();
    for (int tries = 0; tree.size() < wanted && tries < 200; ++tries) {
      int32_t parent =
          static_cast<int32_t>(random_.below(static_cast<uint64_t>(tree.size()) + 1)) - 1;
      auto token = static_cast<int32_t>(random_.below(static_cast<uint64_t>(vocabulary_)));
      const bool is_right =
          right != spec::DraftTree::kNone && next < tokens.size() && random_.uniform() < rightness_;
      if (is_right) parent = right, token = tokens[next];
      const int32_t depth = parent == spec::DraftTree::kRoot ? 0 : tree[parent].depth;
      if (depth == request.strategy.depth) continue;
      int32_t node = tree.find_child(parent, token);
      if (node == spec::DraftTree::kNone)
        node = tree.add(parent, token, static_cast<float>(random_.uniform()));
      if (is_right) right = node, ++next;
    }
    tree.arrange();
  }

  const Rollouts& truth_;
  const int64_t vocabulary_;
  const double rightness_;
  RandomStream random_;
};

}  // namespace tlt::tests
