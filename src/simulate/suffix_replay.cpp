// SPDX-License-Identifier: Apache-2.0
#include "simulate/suffix_replay.h"

#include <algorithm>
#include <utility>

namespace tlt::simulate {
namespace {

size_t position_of(const SimulatedSequence& sequence) {
  return static_cast<size_t>(sequence.generated);
}

std::span<const int32_t> generated_tokens(const SimulatedSequence& sequence) {
  return std::span(sequence.recorded->tokens).first(position_of(sequence));
}

}  // namespace

// A group may be decoded twice in a step (+partial), so its number counts, not that of its prompt.
drafter::SequenceId SuffixReplay::id_of(const SimulatedSequence& sequence) const {
  return {sequence.recorded->prompt_id,
          static_cast<uint32_t>(sequence.group * samples_ + sequence.sample)};
}

// As rollout/draft_step.h. The prompt's forward pass gives the first token.
size_t SuffixReplay::propose(std::span<SimulatedSequence*> sequences,
                             const drafter::Strategy& strategy) {
  if (trees_.size() < sequences.size()) trees_.resize(sequences.size());
  requests_.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SimulatedSequence& sequence = *sequences[i];
    trees_[i].clear();
    const auto position = static_cast<int64_t>(position_of(sequence));
    drafter::Strategy limited = strategy;
    limited.depth = std::min(limited.depth, most_ - position - 1);
    if (position == 0 || limited.depth < 1) continue;
    requests_.push_back({.id = id_of(sequence),
                         .prompt = sequence.recorded->prompt,
                         .response = generated_tokens(sequence),
                         .strategy = limited,
                         .tree = &trees_[i]});
  }
  drafter_.propose(requests_);
  size_t found = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (trees_[i].empty()) continue;
    std::swap(trees_[found], trees_[i]);
    std::swap(sequences[found++], sequences[i]);
  }
  return found;
}

drafter::VerifiedTree SuffixReplay::verify(size_t i, int32_t nodes,
                                           const SimulatedSequence& sequence) {
  drafter::DraftTree& tree = trees_[i];
  if (nodes < tree.size()) tree.keep_best(nodes);
  const size_t position = position_of(sequence);
  drafter::VerifiedTree verified{.nodes = tree.nodes(), .position = static_cast<int64_t>(position)};
  for (const int32_t token : std::span(sequence.recorded->tokens).subspan(position)) {
    const int32_t child = tree.find_child(verified.accepted, token);
    if (child == drafter::DraftTree::kNone) break;
    verified.accepted = child;
  }
  return verified;
}

void SuffixReplay::end(const SimulatedSequence& sequence) {
  drafter_.end(id_of(sequence), generated_tokens(sequence));
}

}  // namespace tlt::simulate
