// DrafterSet: the drafters of a Speculation, what they have not read yet, and their counters.
//
// A drafter that throws, or proposes an impossible tree, is disabled, alone and in mixed trees,
// with one warning; decoding continues without it.
//
// Owns       the drafters, the hidden states that they have not read, their calibrations and
//            counters.
// Not here   which of them drafts in a step (speculation_policy.h).
// Threading  engine thread only; no locks; no allocation once warm.
//
//   DrafterSet::Member* member = drafters.find("eagle");
//   drafters.deliver_states([](drafter::SequenceId) { return true; });
//   if (member && drafters.try_propose(*member, requests)) … the engine step …
//   drafters.read(plan, states);
//   drafters.count(*member, verified_trees);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drafter/calibration.h"
#include "drafter/drafter.h"
#include "drafter/mixed_drafter.h"
#include "rollout/hidden_state_log.h"
#include "rollout/step_plan.h"
#include "rollout/target_states.h"
#include "speculation/tuning_policy.h"

namespace tlt::rollout {

// Counters of one drafter, or summed over several, since construction.
struct DraftStats {
  static constexpr size_t kLevels = 16;

  int64_t steps = 0;            // engine steps with its draft trees
  int64_t requests = 0;         // sequences of those steps for which it was to draft
  int64_t trees = 0;            // verified
  int64_t drafted_tokens = 0;   // nodes of those trees
  int64_t accepted_tokens = 0;  // acceptance length = 1 + accepted_tokens / trees
  // drafted_at[i]: trees at least i + 1 deep; accepted_at[i]: of them, accepted to depth i + 1.
  std::array<int64_t, kLevels> drafted_at = {};
  std::array<int64_t, kLevels> accepted_at = {};
  // By position of the tree in the response (speculation::position_bucket()).
  std::array<int64_t, speculation::kPositions> trees_at_position = {};
  std::array<int64_t, speculation::kPositions> accepted_at_position = {};
  // Nodes of mixed trees that this drafter proposed, alone or with others; the accepted ones.
  int64_t mixed_drafted = 0;
  int64_t mixed_accepted = 0;
  double draft_seconds = 0;
  int64_t failed = 0;  // 1: it threw and is disabled

  void count(const drafter::VerifiedTree& tree);
  // Calls v(counter) for each.
  void visit(auto&& v) {
    v(steps), v(requests), v(trees), v(drafted_tokens), v(accepted_tokens);
    for (int64_t& trees_at : drafted_at) v(trees_at);
    for (int64_t& trees_at : accepted_at) v(trees_at);
    for (int64_t& trees_at : trees_at_position) v(trees_at);
    for (int64_t& accepted : accepted_at_position) v(accepted);
    v(mixed_drafted), v(mixed_accepted), v(draft_seconds), v(failed);
  }
};

class DrafterSet {
 public:
  struct Member {
    std::unique_ptr<drafter::Drafter> drafter;
    DraftStats stats = {};
    drafter::Calibration calibration = {};  // of its trees; mixed trees are calibrated when merged
    std::string_view kind() const { return drafter->kind(); }
    bool works() const { return stats.failed == 0; }
  };
  static constexpr const char* kMixed = "mixed";

  // mixes: the last member is a mixed drafter of all others. vocabulary: the target's; draft tokens
  // are checked against it.
  DrafterSet(std::vector<std::unique_ptr<drafter::Drafter>> drafters, bool mixes,
             int64_t vocabulary);
  DrafterSet(const DrafterSet&) = delete;
  DrafterSet& operator=(const DrafterSet&) = delete;

  std::span<Member> members() { return members_; }
  std::span<const Member> members() const { return members_; }
  // Null: no such drafter, or it has failed.
  Member* find(std::string_view kind);
  bool is_mixed(const Member& member) const { return member.drafter.get() == mixed_; }
  drafter::MixedDrafter* mixed() const { return mixed_; }  // or null
  // The kinds that a tuner chooses from: of the working drafters those in `named`; empty: all. A
  // mixed drafter of a single working drafter is that drafter.
  std::vector<std::string> competing(const std::vector<std::string>& named) const;
  int64_t failures() const;
  // The target's layers that the drafters read. InputError when two drafters read different ones.
  Layers layers() const;
  int64_t memory_bytes() const;

  // Fills the trees of the requests. False: the drafter failed, and the trees are empty.
  [[nodiscard]] bool try_propose(Member& member, std::span<const drafter::DraftRequest> requests);

  // Reads the hidden states of a committed step: passes on those of prompt rows, keeps those that
  // tokens of responses were sampled from.
  void read(const StepPlan& plan, const TargetStates& states);
  // Passes kept states to the drafters: those of the sequences with is_wanted(id).
  template <class IsWanted>
  void deliver_states(const IsWanted& is_wanted) {
    log_.take(is_wanted, [this](auto&&... state) { deliver(state...); });
  }
  // Counts the verified trees of a step. An empty one was requested but not drafted.
  void count(Member& member, std::span<const drafter::VerifiedTree> trees);

  // The response is finished, or was cancelled.
  void end(drafter::SequenceId id, std::span<const int32_t> response);
  void new_weights();

 private:
  template <class Call>
  void guard(Member& member, const Call& call);
  template <class Call>
  void for_each_drafter(const Call& call);
  void check(const drafter::DraftRequest& request) const;
  void read_prompt(const GroupState& group, const NewRows& rows, std::span<const int32_t> tokens,
                   const TargetStates& states);
  void keep_resumed(const Sequence& sequence, const NewRows& rows, const TargetStates& states);
  void keep_sampled(const StepPlan& plan, const SampleRequest& request, const TargetStates& states);
  // Tokens first_token … of the response were sampled from `count` rows from first_row on.
  void keep(const Sequence& sequence, int64_t first_token, int32_t first_row, int32_t count,
            const TargetStates& states);
  void deliver(drafter::SequenceId id, int64_t first, const TargetStates& states,
               std::span<const int32_t> rows);
  void count_origins(const drafter::VerifiedTree& tree);

  const int64_t vocabulary_;
  std::vector<Member> members_;
  drafter::MixedDrafter* mixed_ = nullptr;  // the last member's drafter, or null
  bool reads_states_ = false;               // any member does
  HiddenStateLog log_;
  std::vector<int32_t> rows_;  // scratch
};

}  // namespace tlt::rollout
