// SPDX-License-Identifier: Apache-2.0
#include "drafter/suffix/suffix_tree.h"

#include <algorithm>

namespace tlt::drafter {

bool SuffixTree::Candidate::operator<(const Candidate& other) const {
  if (probability != other.probability) return probability < other.probability;
  if (depth != other.depth) return depth > other.depth;
  return order > other.order;
}

void SuffixTree::fill(const Strategy& strategy, double min_probability, DraftTree* tree) {
  tree->clear();
  if (strategy.is_off() || strategy.depth < 1) return;
  strategy_ = strategy;
  min_probability_ = min_probability;
  found_ = 0;
  candidates_.clear();
  expanded_.assign(static_cast<size_t>(strategy.depth), 0);
  expand(DraftTree::kRoot, /*depth=*/0, /*probability=*/1, 0, occurrences_.size());
  while (!candidates_.empty() && tree->size() < strategy.verify - 1) {
    std::pop_heap(candidates_.begin(), candidates_.end());
    const Candidate best = candidates_.back();
    candidates_.pop_back();
    const int32_t node = tree->add(best.parent, best.token, static_cast<float>(best.probability));
    if (best.depth == strategy.depth) continue;
    if (++expanded_[static_cast<size_t>(best.depth)] > strategy.width) continue;
    for (size_t i = best.first; i < best.first + best.count; ++i) occurrences_[i].advance();
    expand(node, best.depth, best.probability, best.first, best.count);
  }
  tree->arrange();
}

void SuffixTree::expand(int32_t node, int32_t depth, double probability, size_t first,
                        size_t count) {
  const auto begin = occurrences_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = std::remove_if(begin, begin + static_cast<std::ptrdiff_t>(count),
                                  [](const Occurrence& one) { return one.at_end(); });
  const auto differs = [&](const Occurrence& one) { return *one.next != *begin->next; };
  if (std::any_of(begin, end, differs))
    std::sort(begin, end,
              [](const Occurrence& a, const Occurrence& b) { return *a.next < *b.next; });
  choices_.clear();
  double all = 0;
  double unseen = 0;
  for (auto at = begin; at != end; ++at) {
    if (choices_.empty() || choices_.back().token != *at->next)
      choices_.push_back(
          {.token = *at->next, .first = static_cast<size_t>(at - occurrences_.begin())});
    const double successes = at->length + depth + 1;
    const double weight = static_cast<double>(at->weight) * successes * successes;
    unseen = std::max(unseen, successes);
    choices_.back().weight += weight;
    ++choices_.back().count;
    all += weight;
  }
  std::ranges::sort(choices_, [](const Choice& a, const Choice& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  });
  const auto width = static_cast<size_t>(strategy_.width);
  for (size_t i = 0; i < std::min(width, choices_.size()); ++i) {
    const Choice& choice = choices_[i];
    const double likely = probability * (choice.weight / (all + unseen));
    if (likely < min_probability_) break;
    candidates_.push_back({.probability = likely,
                           .order = found_++,
                           .parent = node,
                           .depth = depth + 1,
                           .token = choice.token,
                           .first = choice.first,
                           .count = choice.count});
    std::push_heap(candidates_.begin(), candidates_.end());
  }
}

int64_t SuffixTree::memory_bytes() const {
  return static_cast<int64_t>(
      occurrences_.capacity() * sizeof(Occurrence) + candidates_.capacity() * sizeof(Candidate) +
      choices_.capacity() * sizeof(Choice) + expanded_.capacity() * sizeof(int64_t));
}

}  // namespace tlt::drafter
