// SPDX-License-Identifier: Apache-2.0
#include "drafter/ngram/ngram_drafter.h"

#include <algorithm>

#include "base/check.h"

namespace tlt::drafter {
namespace {

constexpr int64_t kLongestBranch = 256;
constexpr int64_t kFewestNodes = 1000;

using Node = NgramTrie::Node;

}  // namespace

void NgramOptions::check() const {
  TLT_CHECK(branch_length >= 2 && branch_length <= kLongestBranch, "branch_length ", branch_length);
  TLT_CHECK(1 <= min_window && min_window <= max_window && max_window < branch_length, "windows ",
            min_window, " to ", max_window, ", branch_length ", branch_length);
  TLT_CHECK(1 <= min_breadth && min_breadth <= max_breadth, "breadths ", min_breadth, " to ",
            max_breadth);
  TLT_CHECK(nodes >= kFewestNodes && nodes < INT32_MAX, "nodes ", nodes);
}

NgramDrafter::NgramDrafter(const NgramOptions& options)
    : options_((options.check(), options)),
      breadth_step_(static_cast<double>(options.max_breadth - options.min_breadth) /
                    static_cast<double>(options.max_window - options.min_window + 1)),
      trie_(options.nodes) {}

void NgramDrafter::read(const DraftRequest& request) {
  const auto [place, is_new] = running_.try_emplace(request.id);
  Sequence& sequence = place->second;
  if (is_new) {
    const auto length = static_cast<size_t>(options_.branch_length);
    sequence.last.reserve(length);
    sequence.paths.reserve(length);
    for (const int32_t token : request.prompt.last(std::min(request.prompt.size(), length)))
      push(sequence, token);
  }
  read(sequence, request.response);
}

void NgramDrafter::read(Sequence& sequence, std::span<const int32_t> response) {
  TLT_CHECK(sequence.read <= response.size(), "a response of ", response.size(), " tokens had ",
            sequence.read, " before");
  for (; sequence.read < response.size(); ++sequence.read) push(sequence, response[sequence.read]);
}

void NgramDrafter::end(SequenceId id, std::span<const int32_t> response) {
  if (const auto sequence = running_.find(id); sequence != running_.end()) {
    read(sequence->second, response);
    running_.erase(sequence);
    return;
  }
  if (response.empty()) return;
  waiting_.emplace_back(response.begin(), response.end());
  waiting_tokens_ += std::ssize(response);
  while (waiting_tokens_ > options_.nodes / options_.branch_length && waiting_.size() > 1) {
    waiting_tokens_ -= std::ssize(waiting_.front());
    waiting_.pop_front();
  }
}

void NgramDrafter::read_waiting() {
  for (const std::vector<int32_t>& response : waiting_) {
    Sequence sequence;
    read(sequence, response);
  }
  waiting_.clear();
  waiting_tokens_ = 0;
}

// A path is entered once it has more than min_window tokens: a shorter one leads to no match.
void NgramDrafter::push(Sequence& sequence, int32_t token) {
  std::vector<int32_t>& last = sequence.last;
  std::vector<NgramTrie::Cursor>& paths = sequence.paths;
  if (static_cast<int64_t>(last.size()) == options_.branch_length) {
    last.erase(last.begin());
    paths.erase(paths.begin());
  }
  last.push_back(token);
  paths.push_back(trie_.root());
  const auto least = static_cast<size_t>(options_.min_window) + 1;
  for (size_t start = 0; start + least <= last.size(); ++start) {
    const bool is_first = start + least == last.size();
    for (size_t i = is_first ? start : last.size() - 1; i < last.size(); ++i)
      paths[start] = trie_.visit(paths[start], last[i]);
  }
}

// The node of the last `window` tokens: from the sequence's cursor, or from the root when the
// cursor was evicted or is too short to exist.
NgramTrie::Node NgramDrafter::find(const Sequence& sequence, int64_t window) const {
  const NgramTrie::Cursor path = *(sequence.paths.end() - window);
  if (window > options_.min_window && trie_.is_there(path)) return path.node;
  Node node = NgramTrie::kRoot;
  for (auto at = sequence.last.end() - window; at != sequence.last.end(); ++at)
    if (node != NgramTrie::kNone) node = trie_.find_child(node, *at);
  return node;
}

// Finds the suffixes of the sequence that the trie has with a continuation, longest first.
void NgramDrafter::match(const Sequence& sequence) {
  matches_.clear();
  const int64_t longest = std::min(std::ssize(sequence.last), options_.max_window);
  for (int64_t window = longest; window >= options_.min_window; --window)
    if (const Node node = find(sequence, window);
        node != NgramTrie::kNone && trie_.newest_child(node) != NgramTrie::kNone)
      matches_.push_back({.node = node, .window = window});
}

void NgramDrafter::propose(std::span<const DraftRequest> requests) {
  read_waiting();
  for (const DraftRequest& request : requests) read(request);
  for (const DraftRequest& request : requests) {
    start_tree(request.strategy, request.tree);
    if (is_full(*request.tree)) continue;
    match(running_.at(request.id));
    for (const Match& match : matches_) fill(match, request.tree);
    request.tree->arrange();
  }
}

// Follows the newest children level by level, fewer the longer the match and the deeper the level.
void NgramDrafter::fill(const Match& match, DraftTree* tree) {
  const double first = static_cast<double>(options_.max_window - match.window) * breadth_step_ +
                       static_cast<double>(options_.min_breadth);
  branches_.assign(1, {.node = match.node, .breadth = first});
  for (size_t i = 0; i < branches_.size() && !is_full(*tree); ++i) {
    const Branch branch = branches_[i];
    if (!try_expand(*tree, branch.draft)) continue;
    int64_t left = std::max(static_cast<int64_t>(branch.breadth), int64_t{1});
    for (Node child = trie_.newest_child(branch.node);
         child != NgramTrie::kNone && left-- > 0 && !is_full(*tree);
         child = trie_.older_sibling(child)) {
      const double probability =
          branch.probability * static_cast<double>(trie_.occurrences(child)) /
          static_cast<double>(std::max<int64_t>(trie_.occurrences(branch.node), 1));
      const int32_t draft = try_child(tree, branch.draft, trie_.token(child), probability);
      if (draft == DraftTree::kNone) continue;
      branches_.push_back({.draft = draft,
                           .node = child,
                           .breadth = branch.breadth - breadth_step_,
                           .probability = probability});
    }
  }
}

void NgramDrafter::start_tree(const Strategy& strategy, DraftTree* tree) {
  tree->clear();
  strategy_ = strategy;
  child_count_.assign(1, -1);
  expanded_.assign(static_cast<size_t>(std::max<int64_t>(strategy.depth, 0)), 0);
}

// Whether the node may have children: not too deep, and one of the first `width` of its level.
bool NgramDrafter::try_expand(const DraftTree& tree, int32_t draft) {
  const int64_t depth = draft == DraftTree::kRoot ? 0 : tree[draft].depth;
  if (depth >= strategy_.depth) return false;
  int64_t& children = child_count_[static_cast<size_t>(draft + 1)];
  if (children >= 0) return true;  // expanded by a longer match
  if (expanded_[static_cast<size_t>(depth)] == strategy_.width) return false;
  ++expanded_[static_cast<size_t>(depth)];
  children = 0;
  return true;
}

// The node's child with this token, added unless a longer match has done so; kNone when the node
// has `width` children already.
int32_t NgramDrafter::try_child(DraftTree* tree, int32_t draft, int32_t token, double probability) {
  const int32_t known = tree->find_child(draft, token);
  if (known != DraftTree::kNone) return known;
  int64_t& children = child_count_[static_cast<size_t>(draft + 1)];
  if (children == strategy_.width) return DraftTree::kNone;
  ++children;
  child_count_.push_back(-1);
  return tree->add(draft, token, static_cast<float>(probability));
}

int64_t NgramDrafter::memory_bytes() const {
  const auto length = static_cast<size_t>(options_.branch_length);
  const size_t sequence = sizeof(std::pair<const SequenceId, Sequence>) +
                          length * (sizeof(int32_t) + sizeof(NgramTrie::Cursor));
  const auto waiting = static_cast<size_t>(waiting_tokens_) * sizeof(int32_t);
  return trie_.memory_bytes() + static_cast<int64_t>(running_.size() * sequence + waiting);
}

}  // namespace tlt::drafter
