// SPDX-License-Identifier: Apache-2.0
#include "rollout/speculation.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace tlt::rollout {

Speculation::Speculation(std::unique_ptr<spec::Drafter> drafter, spec::Strategy strategy,
                         int64_t vocabulary)
    : drafter_(std::move(drafter)), strategy_(strategy), vocabulary_(vocabulary) {}

Speculation::~Speculation() = default;

template <class Call>
void Speculation::guard(const Call& call) {
  if (stats_.failed) return;
  try {
    call();
  } catch (const std::exception& error) {
    stats_.failed = true;
    warn_once("drafter", "the {} drafter failed and is not asked again; decoding goes on: {}",
              drafter_->kind(), error.what());
  }
}

void Speculation::check(const spec::DraftRequest& request) {
  const spec::DraftTree& tree = *request.tree;
  TLT_CHECK(tree.size() < request.strategy.verify, "a tree of ", tree.size(), " nodes for ",
            to_string(request.strategy));
  TLT_CHECK(tree.is_depth_first(), "a tree that does not stand depth first");
  for (const spec::DraftNode& node : tree.nodes()) {
    TLT_CHECK(node.depth <= request.strategy.depth, "a node of depth ", node.depth, " for ",
              to_string(request.strategy));
    TLT_CHECK(node.token >= 0 && node.token < vocabulary_, "token ", node.token,
              " of a vocabulary of ", vocabulary_);
  }
}

void Speculation::propose(std::span<const std::unique_ptr<Sequence>> running) {
  const Stopwatch watch;
  requests_.clear();
  for (const auto& sequence : running) {
    sequence->draft.clear();
    if (!sequence->decodes() || strategy_.is_off()) continue;
    // The last token of a response is nobody's root, so a path is shorter than what remains.
    spec::Strategy strategy = strategy_;
    strategy.depth = std::min(strategy.depth, sequence->remaining() - 1);
    if (strategy.depth < 1) continue;
    const GroupState& group = *sequence->group;
    requests_.push_back({.id = {group.request.prompt_id, sequence->sample},
                         .prompt = group.request.tokens,
                         .response = sequence->tokens,
                         .strategy = strategy,
                         .tree = &sequence->draft});
  }
  if (requests_.empty()) return;
  guard([&] {
    drafter_->propose(requests_);
    for (const spec::DraftRequest& request : requests_) check(request);
  });
  if (stats_.failed)
    for (const spec::DraftRequest& request : requests_) request.tree->clear();
  stats_.draft_seconds += watch.seconds();
}

void Speculation::read_prompt(uint32_t prompt_id, int32_t position, const at::Tensor& hidden,
                              std::span<const int32_t> tokens) {
  guard([&] { drafter_->read_prompt(prompt_id, position, hidden, tokens); });
}

void Speculation::committed(const Draw& draw, const Drawn& drawn, size_t tokens,
                            const at::Tensor& hidden) {
  const Sequence& sequence = *draw.sequence;
  const spec::SequenceId id{sequence.group->request.prompt_id, sequence.sample};
  if (draw.is_tree) {
    ++stats_.trees;
    stats_.drafted_tokens += sequence.draft.size();
    stats_.accepted_tokens += static_cast<int64_t>(tokens) - 1;
  }
  committed_.clear();
  rows_.clear();
  for (size_t i = 0; i < tokens; ++i) {
    committed_.push_back(drawn.tokens[i].token);
    rows_.push_back(draw.row + (draw.is_tree ? drawn.path[i] : 0));
  }
  guard([&] {
    if (sequence.target_forwards == 1) drafter_->begin(id, sequence.group->request.tokens);
    drafter_->read_states(id, hidden, rows_);
    drafter_->commit(id, committed_);
  });
}

void Speculation::ended(spec::SequenceId id) {
  guard([&] { drafter_->end(id); });
}

}  // namespace tlt::rollout
