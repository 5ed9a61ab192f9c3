// SPDX-License-Identifier: Apache-2.0
#include "drafter/mixed_drafter.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::drafter {
namespace {

constexpr int kMostFollowed = 2;         // leaves continued per tree; a look-up takes microseconds
constexpr float kLeastFollowed = 0.05f;  // smallest probability of a continued leaf

}  // namespace

MixedDrafter::MixedDrafter(std::vector<Drafter*> drafters, Ask ask)
    : drafters_(std::move(drafters)),
      propose_(std::move(ask)),
      calibrations_((size_t{1} << drafters_.size()) + 1),
      trees_(drafters_.size()) {
  TLT_CHECK(drafters_.size() <= kMostDrafters, drafters_.size(), " drafters");
}

size_t MixedDrafter::calibration_of(uint32_t drafters) const {
  return (drafters & kFollowed) != 0 ? calibrations_.size() - 1 : drafters;
}

double MixedDrafter::corrected(NodeOrigin origin) const {
  return calibrations_[calibration_of(origin.drafters)].corrected(origin.claimed);
}

void MixedDrafter::propose(std::span<const DraftRequest> requests) {
  propose_all(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& request = requests[i];
    nodes_.clear();
    for (size_t drafter = 0; drafter < drafters_.size(); ++drafter)
      merge(trees_[drafter][i], drafter);
    fill(*request.tree);
    for (size_t drafter = 0; drafter < drafters_.size(); ++drafter)
      if (drafters_[drafter]->follows_paths()) follow(request, drafter);
    request.tree->keep_best(static_cast<int32_t>(request.strategy.verify) - 1);
    request.tree->arrange();
  }
}

// Fills trees_; the trees of a drafter that failed are empty.
void MixedDrafter::propose_all(std::span<const DraftRequest> requests) {
  for (size_t drafter = 0; drafter < drafters_.size(); ++drafter) {
    std::vector<DraftTree>& trees = trees_[drafter];
    if (trees.size() < requests.size()) trees.resize(requests.size());
    requests_.assign(requests.begin(), requests.end());
    for (size_t i = 0; i < requests.size(); ++i) {
      trees[i].clear();
      requests_[i].tree = &trees[i];
    }
    if (propose_(drafter, requests_)) continue;
    for (size_t i = 0; i < requests.size(); ++i) trees[i].clear();
  }
}

void MixedDrafter::merge(const DraftTree& tree, size_t drafter) {
  const bool is_first = nodes_.empty();
  place_.clear();
  for (const DraftNode& draft : tree.nodes()) {
    const int32_t parent = draft.parent == DraftTree::kRoot
                               ? DraftTree::kRoot
                               : place_[static_cast<size_t>(draft.parent)];
    int32_t node = is_first ? DraftTree::kNone : find(parent, draft.token);
    if (node == DraftTree::kNone) {
      node = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.token = draft.token, .parent = parent});
    }
    Node& mixed = nodes_[static_cast<size_t>(node)];
    mixed.miss *= 1 - static_cast<double>(draft.probability);
    mixed.drafters |= 1u << drafter;
    place_.push_back(node);
  }
}

int32_t MixedDrafter::find(int32_t parent, int32_t token) const {
  for (auto i = static_cast<size_t>(parent + 1); i < nodes_.size(); ++i)
    if (nodes_[i].parent == parent && nodes_[i].token == token) return static_cast<int32_t>(i);
  return DraftTree::kNone;
}

void MixedDrafter::fill(DraftTree& tree) {
  tree.clear();
  for (const Node& node : nodes_) {
    const NodeOrigin origin{static_cast<float>(1 - node.miss), node.drafters};
    tree.add(node.parent, node.token, static_cast<float>(corrected(origin)), origin);
  }
}

// Lets the drafter continue leaves of the others.
void MixedDrafter::follow(const DraftRequest& request, size_t drafter) {
  DraftTree& tree = *request.tree;
  is_inner_.assign(static_cast<size_t>(tree.size()), false);
  for (const DraftNode& node : tree.nodes())
    if (node.parent != DraftTree::kRoot) is_inner_[static_cast<size_t>(node.parent)] = true;
  for (int i = 0; i < kMostFollowed; ++i) {
    const int32_t leaf = find_leaf(request, drafter);
    if (leaf == DraftTree::kNone) return;
    is_inner_[static_cast<size_t>(leaf)] = true;
    path_.clear();
    for (int32_t node = leaf; node != DraftTree::kRoot; node = tree[node].parent)
      path_.push_back(tree[node].token);
    std::ranges::reverse(path_);
    DraftRequest next = request;
    next.strategy.depth -= tree[leaf].depth;
    next.tree = &continuation_;
    next.path = path_;
    next.draws = request.draws.after(tree[leaf].depth);
    continuation_.clear();
    if (!propose_(drafter, {&next, 1})) return;
    graft(leaf, drafter, tree);
  }
}

int32_t MixedDrafter::find_leaf(const DraftRequest& request, size_t drafter) {
  const DraftTree& tree = *request.tree;
  int32_t best = DraftTree::kNone;
  for (int32_t node = 0; node < std::ssize(is_inner_); ++node) {
    const DraftNode& leaf = tree[node];
    if (is_inner_[static_cast<size_t>(node)] || (leaf.origin.drafters >> drafter & 1) != 0 ||
        leaf.depth >= request.strategy.depth || leaf.probability < kLeastFollowed)
      continue;
    if (best == DraftTree::kNone || leaf.probability > tree[best].probability) best = node;
  }
  return best;
}

void MixedDrafter::graft(int32_t leaf, size_t drafter, DraftTree& tree) {
  const float above = tree[leaf].probability;
  place_.clear();
  for (const DraftNode& node : continuation_.nodes()) {
    const int32_t parent =
        node.parent == DraftTree::kRoot ? leaf : place_[static_cast<size_t>(node.parent)];
    const NodeOrigin origin{above * node.probability, kFollowed | 1u << drafter};
    place_.push_back(tree.add(parent, node.token, static_cast<float>(corrected(origin)), origin));
  }
}

void MixedDrafter::record(std::span<const VerifiedTree> trees) {
  for (const VerifiedTree& tree : trees) {
    for (const DraftNode& node : tree.nodes)
      calibrations_[calibration_of(node.origin.drafters)].expect(node.origin.claimed);
    for (int32_t i = tree.accepted; i >= 0; i = tree.nodes[static_cast<size_t>(i)].parent) {
      const NodeOrigin& origin = tree.nodes[static_cast<size_t>(i)].origin;
      calibrations_[calibration_of(origin.drafters)].accept(origin.claimed);
    }
  }
  for (Calibration& calibration : calibrations_) calibration.learn();
}

nlohmann::json MixedDrafter::save() const {
  nlohmann::json json = nlohmann::json::array();
  for (const Calibration& calibration : calibrations_) json.push_back(calibration.save());
  return json;
}

void MixedDrafter::restore(const nlohmann::json& state) {
  for (size_t i = 0; i < calibrations_.size(); ++i) calibrations_[i].restore(state.at(i));
}

int64_t MixedDrafter::memory_bytes() const {
  int64_t bytes = continuation_.memory_bytes();
  for (const std::vector<DraftTree>& trees : trees_)
    for (const DraftTree& tree : trees) bytes += tree.memory_bytes();
  return bytes + static_cast<int64_t>(nodes_.capacity() * sizeof(Node));
}

}  // namespace tlt::drafter
