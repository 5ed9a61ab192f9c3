// NgramDrafter ("ngram"): longest-match n-gram look-up, n = 12, 11, … 1, in one trie over all
// responses (FastRL's, after Ant Group's Lookahead).
//
// FastRL enters the last branch_length tokens again after each verification, so that an n-gram
// counts once per verification that reads it. Here an n-gram counts once per occurrence, and a
// sequence keeps a cursor into the trie for each start within its last branch_length tokens: a
// token costs branch_length steps instead of up to branch_length^2 / 2. A response that ends
// without a request for it waits, up to as many tokens as the trie can hold, until the next
// request.
//
// Owns       the trie, the last tokens of each requested sequence, responses that wait.
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "drafter/drafter.h"
#include "drafter/ngram/ngram_trie.h"

namespace tlt::drafter {

// FastRL's defaults, which are SGLang's; not options, so that its figures are comparable.
struct NgramOptions {
  int64_t branch_length = 18;  // longest n-gram remembered, in tokens
  int64_t max_window = 12;     // longest suffix of a text that is looked up, in tokens
  int64_t min_window = 1;      // shortest one
  int64_t max_breadth = 10;    // latest continuations followed after the shortest match
  int64_t min_breadth = 1;     // latest continuations followed after the longest match
  int64_t nodes = 10'000'000;  // n-grams in the trie, 450 MB when full; the oldest are evicted

  void check() const;
};

class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(const NgramOptions& options);

  std::string_view kind() const override { return "ngram"; }
  void propose(std::span<const DraftRequest> requests) override;
  void end(SequenceId id, std::span<const int32_t> response) override;
  int64_t memory_bytes() const override;

  const NgramTrie& trie() const { return trie_; }

 private:
  struct Sequence {
    std::vector<int32_t> last;             // at most branch_length tokens
    std::vector<NgramTrie::Cursor> paths;  // from each of them to the end
    size_t read = 0;                       // tokens of the response read so far
  };
  struct Match {
    NgramTrie::Node node = NgramTrie::kRoot;
    int64_t window = 0;
  };
  struct Branch {  // a node of the draft tree and its node of the trie
    int32_t draft = DraftTree::kRoot;
    NgramTrie::Node node = NgramTrie::kRoot;
    double breadth = 0;      // children followed
    double probability = 1;  // of the path since the match
  };

  void read(const DraftRequest& request);
  void read(Sequence& sequence, std::span<const int32_t> response);
  void read_waiting();
  void push(Sequence& sequence, int32_t token);
  NgramTrie::Node find(const Sequence& sequence, int64_t window) const;
  void match(const Sequence& sequence);
  void fill(const Match& match, DraftTree* tree);

  // Apply the strategy's limits while a tree is filled.
  void start_tree(const Strategy& strategy, DraftTree* tree);
  bool is_full(const DraftTree& tree) const { return tree.size() >= strategy_.verify - 1; }
  bool try_expand(const DraftTree& tree, int32_t draft);
  int32_t try_child(DraftTree* tree, int32_t draft, int32_t token, double probability);

  const NgramOptions options_;
  const double breadth_step_;
  NgramTrie trie_;
  std::map<SequenceId, Sequence> running_;
  std::deque<std::vector<int32_t>> waiting_;  // responses, oldest first
  int64_t waiting_tokens_ = 0;

  // Scratch of propose().
  Strategy strategy_;
  std::vector<Match> matches_;
  std::vector<Branch> branches_;      // a queue
  std::vector<int64_t> child_count_;  // by draft node + 1; -1: not expanded
  std::vector<int64_t> expanded_;     // by depth
};

}  // namespace tlt::drafter
