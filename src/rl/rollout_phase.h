// RolloutPhase: the first half of a step: all workers turn the step's prompts into scored
// responses.
//
// A worker takes groups while it has room, decodes, and hands finished responses to the reward
// pool; with nothing to roll out it trains the drafter if the coordinator lets it; when the last
// group of the step is done anywhere, the workers exchange what they have. Everybody ends with the
// same list. Asked to move, it hands all that it has not finished to another worker, tokens and
// logprobs; random numbers belong to places, so they end there as they would have here.
//
// Borrows    engine, reward pool, group source, comm, tokenizer, idle work, timeline.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cluster/comm.h"
#include "cluster/group_source.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "reward/reward_pool.h"
#include "rl/idle_work.h"
#include "rl/rollout.h"
#include "rl/step_progress.h"
#include "rollout/engine.h"

namespace tlt::rl {

// What to sample for each prompt, and at which place its random numbers are.
struct SamplingPlan {
  std::shared_ptr<const rollout::SamplingOptions> sampling;
  int64_t samples = 1;
  uint32_t rl_step = 0;
  uint64_t seed = 0;
  PhaseName name = {};  // in the timeline and on the terminal
};

// This worker's time in the phase.
struct PhaseTimes {
  double decode_seconds = 0;               // the engine ran
  double idle_seconds = 0;                 // the engine was empty while others still decoded
  double reward_seconds = 0;               // waited for rewards after the last token
  int64_t groups = 0;                      // taken by this worker
  int64_t moved_sequences = 0;             // from this worker to another one
  std::vector<double> preemption_seconds;  // from each end of idle work to the engine's next step

  PhaseTimes& operator+=(const PhaseTimes& more);
};

class RolloutPhase {
 public:
  RolloutPhase(rollout::Engine& engine, reward::RewardPool& rewards, cluster::GroupSource& groups,
               cluster::Comm& comm, const data::Tokenizer& tokenizer,
               IdleWork* idle_work = nullptr);

  void set_timeline(Timeline* timeline) { timeline_ = timeline; }

  // All workers' rollouts, ordered by prompt and sample. Throws Error when a worker is lost.
  std::vector<Rollout> run(std::span<const data::Prompt> prompts, const SamplingPlan& plan);

  const PhaseTimes& times() const { return times_; }

 private:
  void take_groups(std::span<const data::Prompt> prompts, const SamplingPlan& plan);
  void start_group(std::span<const data::Prompt> prompts, const SamplingPlan& plan, int64_t group);
  void go_on_with(std::span<const data::Prompt> prompts, const SamplingPlan& plan, int64_t parcel);
  void move_what_is_left();
  void tell_load();
  void collect(std::span<const data::Prompt> prompts, const SamplingPlan& plan);
  void be_idle();
  void attach_scores(const std::string& name);
  std::string says(const PhaseName& name) const;
  void show(PhaseWatch& watch, const SamplingPlan& plan, int64_t tokens_before) const;
  std::vector<Rollout> exchange(size_t expected);

  rollout::Engine& engine_;
  reward::RewardPool& rewards_;
  cluster::GroupSource& groups_;
  cluster::Comm& comm_;
  const data::Tokenizer& tokenizer_;
  IdleWork* const idle_work_;  // or null
  Timeline* timeline_ = nullptr;

  int64_t phases_ = 0;                     // the source's step number
  int64_t share_ = 0;                      // groups this worker takes without stealing
  std::map<int64_t, int64_t> unfinished_;  // group or parcel -> responses still to come
  std::map<uint32_t, int64_t> source_of_;  // index of an unfinished prompt -> group or parcel
  std::map<uint32_t, uint32_t> index_of_;  // prompt id -> index in the step's prompts
  std::vector<Rollout> mine_;
  // What tell_load() told last.
  int64_t told_sequences_ = 0;
  int64_t steps_since_told_ = 0;
  PhaseTimes times_;
};

}  // namespace tlt::rl
