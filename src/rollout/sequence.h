// Sequence: one response in the making; GroupState: the prompt it shares with the other samples of
// its group.
//
// A group computes its prompt once, in pages of its own. A sample that starts shares the full ones
// and copies the last, partly filled one, because there it goes on writing.
//
// Owns       tokens and page ids.
// Not here   taking and giving back the pages (scheduler.h); who else holds them (kv/page_pool.h).
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ops/batch.h"
#include "ops/sampling.h"
#include "rollout/request.h"
#include "rollout/stop_text.h"
#include "spec/draft_tree.h"

namespace tlt::rollout {

// Pages that hold so many positions.
inline int64_t pages_for(int64_t positions) {
  return (positions + ops::kPageSlots - 1) / ops::kPageSlots;
}

struct Sequence;

struct GroupState {
  // Constant once submitted.
  Group request;
  std::vector<int32_t> stop_tokens;
  int64_t max_new_tokens = 0;           // the request's, or what the model's positions leave
  const StopText* stop_text = nullptr;  // there when the request has stop texts
  ops::SamplingRule rule;

  // Moves with the engine's steps.
  std::vector<ops::PageId> pages;     // of the prompt; none when its last sample took them over
  int32_t computed = 0;               // prompt positions whose keys and values are there
  int32_t furthest = 0;               // the most `computed` has ever been
  std::vector<Sequence*> unfinished;  // its samples, in order

  int32_t prompt_tokens() const { return static_cast<int32_t>(request.tokens.size()); }
  bool prompt_ready() const { return computed == prompt_tokens(); }
  // Pages one sample needs to reach max_new_tokens with nothing beside it but its group's prompt.
  int64_t pages_to_finish() const;
};

struct Sequence {
  enum class State { kWaiting, kRunning, kFinished };

  std::shared_ptr<GroupState> group;
  uint32_t sample = 0;
  int64_t age = 0;  // its place in the order of arrival
  State state = State::kWaiting;

  std::vector<int32_t> tokens;  // the response so far
  std::vector<float> logprobs;
  std::vector<float> truncated_logprobs;
  int64_t target_forwards = 0;
  std::unique_ptr<StopFinder> stop_finder;
  std::vector<int32_t> begun;  // the first of `tokens`, where another engine chose them

  spec::DraftTree draft;  // guesses for the next step; empty: none

  std::vector<ops::PageId> pages;  // empty: not started
  int32_t computed = 0;  // positions, from the prompt's first, whose keys and values are in `pages`
  int32_t furthest = 0;  // the most `computed` has ever been

  // Positions with a known token; the last one's keys are computed when the next token is chosen.
  int32_t known() const { return group->prompt_tokens() + static_cast<int32_t>(tokens.size()); }

  // All that is known but the last token has its keys and values: the state to draft from.
  bool decodes() const { return !tokens.empty() && computed == known() - 1; }
  // Tokens it may still get.
  int64_t remaining() const { return group->max_new_tokens - std::ssize(tokens); }

  // In [0, 1), that the token behind `more` others is chosen with.
  double number(size_t more) const;

  // Takes over what another engine has chosen so far. REQUIRES: it has no tokens.
  void go_on(Response begun);

  // Adds a token; the reason when it is the last one.
  std::optional<FinishReason> append(const ops::Sampled& sampled);

  // Moves the tokens out.
  Response finish(FinishReason reason);
};

}  // namespace tlt::rollout
