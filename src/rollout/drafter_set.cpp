// SPDX-License-Identifier: Apache-2.0
#include "rollout/drafter_set.h"

#include <numeric>
#include <type_traits>

#include "base/check.h"
#include "base/log.h"

namespace tlt::rollout {

void DraftStats::count(const drafter::VerifiedTree& tree) {
  const auto accepted = static_cast<size_t>(tree.accepted_depth());
  ++trees;
  drafted_tokens += std::ssize(tree.nodes);
  accepted_tokens += tree.accepted_depth();
  const size_t bucket = speculation::position_bucket(tree.position);
  ++trees_at_position[bucket];
  accepted_at_position[bucket] += tree.accepted_depth();
  const auto depth = static_cast<size_t>(drafter::depth_of(tree.nodes));
  for (size_t i = 0; i < std::min(depth, kLevels); ++i) {
    ++drafted_at[i];
    if (i < accepted) ++accepted_at[i];
  }
}

DrafterSet::DrafterSet(std::vector<std::unique_ptr<drafter::Drafter>> drafters, bool mixes,
                       int64_t vocabulary)
    : vocabulary_(vocabulary) {
  for (std::unique_ptr<drafter::Drafter>& drafter : drafters) {
    reads_states_ = reads_states_ || drafter->reads_states();
    members_.push_back({std::move(drafter)});
  }
  if (!mixes) return;
  std::vector<drafter::Drafter*> mixed;
  for (const Member& member : members_) mixed.push_back(member.drafter.get());
  auto drafter = std::make_unique<drafter::MixedDrafter>(
      std::move(mixed), [this](size_t i, std::span<const drafter::DraftRequest> requests) {
        return try_propose(members_[i], requests);
      });
  mixed_ = drafter.get();
  members_.push_back({std::move(drafter)});
}

DrafterSet::Member* DrafterSet::find(std::string_view kind) {
  const auto member = std::ranges::find_if(
      members_, [&](const Member& it) { return it.works() && it.kind() == kind; });
  return member == members_.end() ? nullptr : &*member;
}

std::vector<std::string> DrafterSet::competing(const std::vector<std::string>& named) const {
  const auto is_named = [&](const Member& member) {
    return named.empty() || std::ranges::find(named, member.kind()) != named.end();
  };
  std::vector<const Member*> alone;  // the working drafters but for the mixed one
  for (const Member& member : members_)
    if (member.works() && !is_mixed(member)) alone.push_back(&member);
  const bool mixes = alone.size() > 1 || (alone.size() == 1 && !is_named(*alone.front()));
  std::vector<std::string> kinds;
  for (const Member& member : members_)
    if (member.works() && is_named(member) && (mixes || !is_mixed(member)))
      kinds.emplace_back(member.kind());
  return kinds;
}

int64_t DrafterSet::failures() const {
  return std::ranges::count_if(members_, [](const Member& member) { return !member.works(); });
}

Layers DrafterSet::layers() const {
  Layers layers;
  for (const Member& member : members_) layers = merge_layers(layers, member.drafter->layers());
  return layers;
}

int64_t DrafterSet::memory_bytes() const {
  int64_t bytes = log_.memory_bytes();
  for (const Member& member : members_) bytes += member.drafter->memory_bytes();
  return bytes;
}

template <class Call>
void DrafterSet::guard(Member& member, const Call& call) {
  if (!member.works()) return;
  try {
    call(*member.drafter);
  } catch (const std::exception& error) {
    member.stats.failed = 1;
    log_warning("the {} drafter failed and is disabled; decoding continues without it: {}",
                member.kind(), error.what());
  }
}

// Calls every drafter that has not failed.
template <class Call>
void DrafterSet::for_each_drafter(const Call& call) {
  for (Member& member : members_) guard(member, call);
}

bool DrafterSet::try_propose(Member& member, std::span<const drafter::DraftRequest> requests) {
  guard(member, [&](drafter::Drafter& drafter) {
    if (!requests.empty()) drafter.propose(requests);
    for (const drafter::DraftRequest& request : requests) check(request);
  });
  if (member.works()) return true;
  for (const drafter::DraftRequest& request : requests) request.tree->clear();
  return false;
}

void DrafterSet::check(const drafter::DraftRequest& request) const {
  const drafter::DraftTree& tree = *request.tree;
  TLT_CHECK(tree.size() < request.strategy.verify, "a tree of ", tree.size(), " nodes for ",
            to_string(request.strategy));
  TLT_CHECK(tree.is_depth_first(), "a tree that is not in depth-first order");
  for (const drafter::DraftNode& node : tree.nodes()) {
    TLT_CHECK(node.depth <= request.strategy.depth, "a node of depth ", node.depth, " for ",
              to_string(request.strategy));
    TLT_CHECK(node.token >= 0 && node.token < vocabulary_, "token ", node.token,
              " of a vocabulary of ", vocabulary_);
  }
}

void DrafterSet::read(const StepPlan& plan, const TargetStates& states) {
  if (!reads_states_) return;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const ScheduledSegment& segment = plan.segments[i];
    const NewRows rows = plan.new_rows(i);
    if (plan.batch.segments[i].is_tree() || rows.count == 0) continue;
    if (segment.sequence == nullptr) {
      read_prompt(*segment.group, rows, plan.batch.tokens, states);
    } else {
      keep_resumed(*segment.sequence, rows, states);
    }
  }
  for (const SampleRequest& request : plan.sample_requests) keep_sampled(plan, request, states);
}

// The prompt's last state is also what a resumed response's first token was sampled from.
void DrafterSet::read_prompt(const GroupState& group, const NewRows& rows,
                             std::span<const int32_t> tokens, const TargetStates& states) {
  const TargetStates prompt_states = states.rows(rows.row, rows.count);
  for_each_drafter([&](drafter::Drafter& drafter) {
    if (drafter.reads_states())
      drafter.read_prompt(
          group.request.prompt_id, rows.position, prompt_states.of_layers(drafter.layers()),
          tokens.subspan(static_cast<size_t>(rows.row), static_cast<size_t>(rows.count)));
  });
  if (rows.position + rows.count < group.prompt_tokens()) return;
  for (const Sequence* sequence : group.unfinished)
    if (!sequence->resumed.empty()) keep(*sequence, 0, rows.row + rows.count - 1, 1, states);
}

// States that tokens of a resumed prefix were sampled from, by another engine.
void DrafterSet::keep_resumed(const Sequence& sequence, const NewRows& rows,
                              const TargetStates& states) {
  const int32_t first = rows.position + 1 - sequence.group->prompt_tokens();
  const auto resumed = static_cast<int32_t>(sequence.resumed.size());
  keep(sequence, first, rows.row, std::min(rows.count, resumed - first), states);
}

void DrafterSet::keep(const Sequence& sequence, int64_t first_token, int32_t first_row,
                      int32_t count, const TargetStates& states) {
  if (count <= 0) return;
  rows_.resize(static_cast<size_t>(count));
  std::iota(rows_.begin(), rows_.end(), first_row);
  log_.add(sequence.id(), first_token, states, rows_);
}

void DrafterSet::keep_sampled(const StepPlan& plan, const SampleRequest& request,
                              const TargetStates& states) {
  const Sequence& sequence = *request.sequence;
  if (sequence.state == Sequence::State::kFinished) return;
  rows_.assign(1, request.row);
  if (request.is_tree) {
    rows_.clear();
    for (const int32_t row : plan.segments[request.segment].kept_path)
      rows_.push_back(request.row + row);
  }
  log_.add(sequence.id(), std::ssize(sequence.tokens) - std::ssize(rows_), states, rows_);
}

void DrafterSet::deliver(drafter::SequenceId id, int64_t first, const TargetStates& states,
                         std::span<const int32_t> rows) {
  for_each_drafter([&](drafter::Drafter& drafter) {
    if (drafter.reads_states())
      drafter.read_states(id, first, states.of_layers(drafter.layers()), rows);
  });
}

void DrafterSet::count(Member& member, std::span<const drafter::VerifiedTree> trees) {
  member.stats.requests += std::ssize(trees);
  for (const drafter::VerifiedTree& tree : trees) {
    if (tree.nodes.empty()) continue;
    member.stats.count(tree);
    if (is_mixed(member)) count_origins(tree);
  }
}

// Counts the nodes of a mixed tree for the drafters that proposed them.
void DrafterSet::count_origins(const drafter::VerifiedTree& tree) {
  const auto count_node = [&](const drafter::DraftNode& node, int64_t DraftStats::*counter) {
    for (size_t i = 0; i + 1 < members_.size(); ++i)
      members_[i].stats.*counter += node.origin.drafters >> i & 1;
  };
  for (const drafter::DraftNode& node : tree.nodes) count_node(node, &DraftStats::mixed_drafted);
  for (int32_t i = tree.accepted; i >= 0; i = tree.nodes[static_cast<size_t>(i)].parent)
    count_node(tree.nodes[static_cast<size_t>(i)], &DraftStats::mixed_accepted);
}

void DrafterSet::end(drafter::SequenceId id, std::span<const int32_t> response) {
  if (reads_states_) log_.forget(id);
  for_each_drafter([&](drafter::Drafter& drafter) { drafter.end(id, response); });
}

void DrafterSet::new_weights() {
  for_each_drafter([](drafter::Drafter& drafter) { drafter.new_weights(); });
}

}  // namespace tlt::rollout
