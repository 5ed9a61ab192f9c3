// Sequence: a response being generated; GroupState: the prompt it shares with the other samples of
// its group.
//
// A group computes its prompt once, in pages of its own. A sample that starts shares the full pages
// and copies the partly filled last one, which it continues to write.
//
// Owns       tokens and page ids.
// Not here   allocating and releasing pages (scheduler.h); reference counts (kv/page_pool.h).
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "drafter/draft_tree.h"
#include "drafter/drafter.h"
#include "kv/prefix_cache.h"
#include "ops/batch.h"
#include "ops/sampling.h"
#include "rollout/request.h"
#include "rollout/stop_string.h"

namespace tlt::rollout {

struct Sequence;

// The first pages of a prompt or sequence that are in the prefix cache.
struct CachedPrefix {
  int64_t pages = 0;
  kv::PrefixId id = kv::PrefixCache::kEmpty;
};

using PageTokens = std::array<int32_t, ops::kPageSlots>;

struct GroupState {
  // Constant once submitted.
  Group request;
  std::vector<int32_t> stop_tokens;
  int64_t max_new_tokens = 0;               // the request's, limited by the model's positions
  const StopString* stop_string = nullptr;  // not null when the request has stop strings
  ops::SamplingRule rule;

  // Changed by the engine's steps.
  std::vector<ops::PageId> pages;     // of the prompt; none when its last sample took them over
  int32_t computed = 0;               // prompt positions whose KV entries are in `pages`
  int32_t max_computed = 0;           // maximum of `computed` so far
  CachedPrefix cached;                // of `pages`, as they were before a sample took them over
  int64_t cached_tokens = 0;          // as in Response
  bool is_looked_up = false;          // in the prefix cache
  std::vector<Sequence*> unfinished;  // its samples, in order

  int32_t prompt_tokens() const { return static_cast<int32_t>(request.tokens.size()); }
  bool prompt_ready() const { return computed == prompt_tokens(); }
  // Pages that one sample needs to reach max_new_tokens when only its group's prompt is in memory.
  int64_t pages_to_finish() const;
  // Pages of a sample that has all its tokens.
  size_t most_pages() const {
    return static_cast<size_t>(ops::pages_for(prompt_tokens() + max_new_tokens));
  }
  // The only sample that is unfinished, if it has tokens; else null.
  Sequence* lone_resumed() const;
};

struct Sequence {
  enum class State { kWaiting, kRunning, kFinished };

  std::shared_ptr<GroupState> group;
  uint32_t sample = 0;
  int64_t age = 0;  // index in the order of arrival
  State state = State::kWaiting;

  std::vector<int32_t> tokens;  // the response so far
  std::vector<float> logprobs, entropies;
  std::vector<std::vector<ops::Sampled>> top_logprobs;  // as in Response
  int64_t target_forwards = 0;
  std::unique_ptr<StopFinder> stop_finder;
  std::vector<int32_t> resumed;     // prefix of `tokens` that another engine sampled
  std::vector<TokenSpan> observed;  // as in Response

  drafter::DraftTree draft;  // draft tokens of the next step; empty: none

  std::vector<ops::PageId> pages;  // empty: not started
  int32_t computed = 0;      // positions, from the prompt's first, whose KV entries are in `pages`
  int32_t max_computed = 0;  // maximum of `computed` so far
  CachedPrefix cached;       // of `pages`

  // Positions with a known token; the KV entry of the last one is computed when the next token is
  // sampled.
  int32_t token_at(int32_t position) const {
    const int32_t prompt = group->prompt_tokens();
    return position < prompt ? group->request.tokens[static_cast<size_t>(position)]
                             : tokens[static_cast<size_t>(position - prompt)];
  }
  // The tokens of its page `page`. REQUIRES: all of them are known.
  void copy_page(int64_t page, PageTokens& tokens) const;
  int32_t known() const { return group->prompt_tokens() + static_cast<int32_t>(tokens.size()); }

  // True when all known positions but the last have KV entries: the sequence can be drafted for.
  bool decodes() const { return !tokens.empty() && computed == known() - 1; }
  // Largest number of tokens it may still get.
  int64_t remaining() const { return group->max_new_tokens - std::ssize(tokens); }

  drafter::SequenceId id() const { return {group->request.prompt_id, sample}; }

  // How its tokens are sampled.
  ops::SamplingRule rule() const {
    return sample < group->request.first_greedy_sample ? group->rule
                                                       : ops::SamplingRule{.temperature = 0};
  }

  // The uniform in [0, 1) that the token `more` positions after the next one is sampled with.
  double uniform_at(size_t more) const;

  // Resumes a response of another engine. REQUIRES: this sequence has no tokens.
  void resume(Response response);

  // Adds a token; returns the reason when it is the last one.
  std::optional<FinishReason> append(const ops::Sampled& sampled);

  // Ends the sequence; moves its tokens out.
  Response finish(FinishReason reason);
};

}  // namespace tlt::rollout
