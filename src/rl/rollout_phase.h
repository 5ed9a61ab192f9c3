// RolloutPhase: the first half of a step: all workers turn the step's prompts into scored
// responses.
//
// A worker takes groups while its engine has free slots, decodes, and submits finished responses to
// the reward pool. With nothing to roll out it trains the draft model if the coordinator allows it.
// When all groups of the step are done, the workers exchange their rollouts, so all have the same
// list. Meanwhile an idle worker computes gradients of finished groups, its own and those that busy
// workers hand over. On request of the coordinator a worker migrates its unfinished sequences, as
// tokens and logprobs, to another worker. A uniform depends only on step, prompt, sample and
// position, so they end there with the same tokens.
//
// If a worker is lost, the coordinator gives its unfinished groups to others. The exchange finds
// the groups whose responses were lost with it; they are rolled out again, with the same tokens.
// With trainer.on_worker_loss=stop the phase throws LostWorkerError.
//
// If a worker is interrupted (Ctrl-C, SIGTERM) in a phase that may stop, all workers stop decoding:
// the phase returns what there is, unfinished responses included (kCancelled), and a later phase
// that gets these as `known` ends with the same rollouts as an undisturbed one.
//
// With an environment a response is an episode (episodes.h). Then sequences do not migrate, since
// the program with the state of an episode cannot, and unfinished episodes are not kept. A worker
// whose sequences all wait for the environment computes gradients of its own finished groups, or
// else, after a while, trains the draft model.
//
// Borrows    engine, reward pool, group source, comm, tokenizer, idle trainer, timeline.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "cluster/comm.h"
#include "cluster/group_source.h"
#include "data/dataset.h"
#include "drafter_training/idle_trainer.h"
#include "reward/reward_pool.h"
#include "rl/early_gradients.h"
#include "rl/episodes.h"
#include "rl/finished_groups.h"
#include "rl/step_progress.h"
#include "rollout/engine.h"
#include "run/rollout.h"
#include "tokenizer/tokenizer.h"

namespace tlt::rl {

// How to sample the responses to each prompt. `rl_step` and `seed` select the uniforms.
struct SamplingPlan {
  std::shared_ptr<const rollout::SamplingOptions> sampling;
  int64_t samples = 1;
  int64_t first_greedy_sample = std::numeric_limits<int64_t>::max();  // as in rollout::Group
  uint32_t rl_step = 0;
  uint64_t seed = 0;
  PhaseName name = {};                        // in the timeline and on the terminal
  EarlyGradients* early_gradients = nullptr;  // null: none are computed
  bool may_stop = false;                      // when a worker is interrupted
};

// This worker's time in the phase.
struct PhaseTimes {
  double decode_seconds = 0;               // engine steps
  double forward_seconds = 0;              // of decode_seconds: forward passes of the policy
  double sample_seconds = 0;               // of decode_seconds: LM head and sampling
  double idle_seconds = 0;                 // the engine is empty while other workers decode
  double reward_seconds = 0;               // waiting for rewards after the last token
  double gradient_seconds = 0;             // early gradients, in idle_seconds or reward_seconds
  double reference_seconds = 0;            // reference logprobs for them, the same
  double half_empty_seconds = 0;           // of decode_seconds: at most half of most_running_
  int64_t groups = 0;                      // taken by this worker
  int64_t moved_sequences = 0;             // migrated from this worker to another one
  int64_t moved_groups = 0;                // finished ones taken over, for early gradients
  int64_t cached_tokens = 0;               // of earlier turns, not computed again
  std::vector<double> preemption_seconds;  // from each end of idle work to the engine's next step

  PhaseTimes& operator+=(const PhaseTimes& more);
  // The counters that are summed over the workers.
  void visit(auto&& v) {
    v(decode_seconds), v(forward_seconds), v(sample_seconds), v(idle_seconds), v(reward_seconds),
        v(gradient_seconds), v(reference_seconds), v(half_empty_seconds), v(groups),
        v(moved_sequences), v(moved_groups), v(cached_tokens);
  }
};

class RolloutPhase {
 public:
  RolloutPhase(rollout::Engine& engine, reward::RewardPool& rewards, cluster::GroupSource& groups,
               cluster::Comm& comm, const tokenizer::Tokenizer& tokenizer);

  void set_timeline(Timeline* timeline) { timeline_ = timeline; }
  // Null, the default: no training of the draft model.
  void set_idle_trainer(drafter_training::IdleTrainer* trainer) { idle_trainer_ = trainer; }
  // Null, the default: no environment.
  void set_episodes(Episodes* episodes) { episodes_ = episodes; }
  // For the choice between idle work: the share of the step before.
  void set_draft_model_share(double share) { draft_model_share_ = share; }

  // Returns all workers' rollouts, ordered by prompt and sample. Throws LostWorkerError if a worker
  // is lost and the others do not continue without it.
  // `known`: rollouts of these prompts that exist already, the same on every worker. Finished ones
  // are not decoded again, unfinished ones (kCancelled) continue, and those without a score get it.
  std::vector<run::Rollout> run(std::span<const data::Prompt> prompts, const SamplingPlan& plan,
                                std::vector<run::Rollout> known = {});

  // Whether the last run() was stopped: some rollouts are missing, unfinished or without a score.
  // The same on every worker.
  bool was_stopped() const { return was_stopped_; }
  // Whether a worker was interrupted in the last run() or since; not the same on every worker at
  // the same time. Tells the others of an interrupt of this worker.
  bool is_interrupted();

  const PhaseTimes& times() const { return times_; }

 private:
  void begin(std::span<const data::Prompt> prompts, const SamplingPlan& plan);
  std::vector<uint32_t> adopt(std::span<const data::Prompt> prompts, const SamplingPlan& plan,
                              std::vector<run::Rollout> known);
  void roll_out(std::span<const uint32_t> pending, std::span<const data::Prompt> prompts,
                const SamplingPlan& plan);
  void take_groups(std::span<const uint32_t> pending, std::span<const data::Prompt> prompts,
                   const SamplingPlan& plan);
  void start_group(uint32_t index, int64_t group, std::span<const data::Prompt> prompts,
                   const SamplingPlan& plan);
  void start_episodes(uint32_t index, int64_t group, const data::Prompt& prompt,
                      const SamplingPlan& plan);
  void resume_migrated(std::span<const data::Prompt> prompts, const SamplingPlan& plan,
                       int64_t migration);
  void count_decoding(double seconds);
  void migrate_unfinished();
  std::vector<run::Rollout> cancel_unfinished();
  bool wants_stop(const SamplingPlan& plan);
  void report_load();
  void submit_for_score(run::Rollout rollout, const data::Prompt& prompt, const SamplingPlan& plan);
  void collect(std::span<const data::Prompt> prompts, const SamplingPlan& plan);
  std::vector<run::Rollout> take_finished();
  int64_t waiting_episodes() const { return episodes_ ? episodes_->waiting() : 0; }
  void be_idle(std::span<const data::Prompt> prompts, const SamplingPlan& plan);
  void share_finished();
  void begin_finished(std::span<const data::Prompt> prompts, const SamplingPlan& plan);
  bool are_gradients_first() const;
  bool prefers_gradients(const SamplingPlan& plan) const;
  bool try_training(const SamplingPlan& plan);
  void train_while_waiting(const SamplingPlan& plan);
  bool try_early_gradients(const SamplingPlan& plan);
  void attach(const std::vector<reward::ScoredSample>& samples);
  void attach_scores(std::span<const data::Prompt> prompts, const SamplingPlan& plan);
  std::string progress_label(const PhaseName& name) const;
  void show(PhaseWatch& watch, const SamplingPlan& plan, int64_t tokens_before) const;
  void keep_rest(std::vector<run::Rollout>& all);
  std::vector<run::Rollout> exchange();
  bool begins_again(std::span<const uint32_t> pending);

  rollout::Engine& engine_;
  reward::RewardPool& rewards_;
  cluster::GroupSource& groups_;
  cluster::Comm& comm_;
  const tokenizer::Tokenizer& tokenizer_;
  drafter_training::IdleTrainer* idle_trainer_ = nullptr;
  Timeline* timeline_ = nullptr;
  Episodes* episodes_ = nullptr;  // or null

  double draft_model_share_ = 0;           // IdleValues
  int64_t phases_ = 0;                     // step number of the group source
  int64_t share_ = 0;                      // groups this worker takes without stealing
  std::map<int64_t, int64_t> unfinished_;  // group or migration -> unfinished responses
  std::map<uint32_t, int64_t> source_of_;  // index of an unfinished prompt -> group or migration
  std::map<uint32_t, uint32_t> index_of_;  // prompt id -> index into the step's prompts
  FinishedGroups finished_;                // finished here, or scored here
  bool wants_finished_ = false;            // asked for another worker's group, and has not got one
  // Of the rollouts that the phase began with: those that are complete; for each prompt that has
  // any, the responses that are left to decode.
  std::vector<run::Rollout> known_;
  std::map<uint32_t, std::vector<rollout::Response>> rest_;
  bool was_stopped_ = false;
  std::optional<double> stop_seen_;      // when this worker was interrupted, by since_begin_
  std::optional<double> waits_since_;    // for the environment without an answer, the same
  std::vector<run::Rollout> cancelled_;  // unfinished when the phase was stopped
  Stopwatch since_begin_;
  int64_t most_running_ = 0;  // largest number of sequences that have run at once
  // State at the last report_load().
  int64_t reported_sequences_ = 0;
  int64_t steps_since_report_ = 0;
  PhaseTimes times_;
};

}  // namespace tlt::rl
