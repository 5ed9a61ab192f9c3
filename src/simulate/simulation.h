// Simulation: RL steps of N workers in virtual time.
//
// Who rolls out which group, migration and promotion to training are decided by the product's
// cluster::Coordinator and cluster::WorkerProtocol, whose messages arrive at once here; drafters
// and strategies by speculation::Tuner; when to train by drafter_training::DriftTrigger; what an
// idle worker does first by rl::gradients_first; who computes which pack by train::plan_packs and
// train::assign_packs. The loop of a worker is that of rl/rollout_phase.cpp.
//
//   rollouts until the last response | reward | exchange | logprob passes | update | weights
//
// One step off, what follows the rollouts runs on other workers, during the rollouts of the next
// step, and only what is left after these counts; the last step waits for all of its own.
//
// A lost worker (losses.h) is treated as rl/rollout_phase.cpp and cluster/continuing_comm.h do: its
// engine ends at once; after Coordinator::kGoneSeconds the coordinator gives its unfinished groups
// to others; groups of which it had finished responses are rolled out in a further round; a phase
// after the rollouts is repeated by the others. Without worker 0 the run ends, and starts again
// from its last checkpoint: the step of the loss is counted whole, and what had to be done twice
// as `restart`.
//
// Idle work changes nothing that others see, so it is computed when the idle time has ended.
// Draft models that idle workers trained are averaged: their tokens count in sum.
//
// Owns       all of the above, for one way.
// Threading  one thread.
// Invariant  rollout seconds x workers that roll out == their decoding + idle + dead seconds;
//            idle == draft training + gradients + unused. Engines' tokens == those of responses +
//            wasted ones.
//
//   Simulation simulation(options, find_way("tlt"));
//   while (!simulation.is_done()) steps.push_back(simulation.run_step());
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "cluster/coordinator.h"
#include "cluster/worker_protocol.h"
#include "drafter_training/drift_trigger.h"
#include "simulate/checkpoint_disk.h"
#include "simulate/losses.h"
#include "simulate/score_queue.h"
#include "simulate/simulate_options.h"
#include "simulate/simulated_engine.h"
#include "simulate/ways.h"
#include "simulate/workload.h"

namespace tlt::simulate {

struct StepReport {
  double seconds = 0;
  // Of them:
  double rollout = 0, reward = 0, exchange = 0, logprobs = 0, update = 0, draft_gap = 0, sync = 0;
  double checkpoint = 0, regroup = 0, restart = 0;
  // Of all workers together, in the rollouts. Dead: of lost workers, since they were lost.
  double decoding = 0, idle = 0, draft_training = 0, gradients = 0, dead = 0;
  int64_t responses = 0, truncated = 0, migrated = 0;
  int64_t lost_workers = 0;
  double wasted_tokens = 0;     // generated, but lost with a worker, or generated again
  double tokens = 0;            // of responses, rolled out in this step
  double updated_tokens = 0;    // of responses, in the update
  double trained_tokens = 0;    // by the draft model
  double draft_acceptance = 0;  // its rate at the beginning; of several steps: of the last
  EngineCounters engines;       // in sum

  // What is summed.
  void visit(auto&& v) {
    v(seconds), v(rollout), v(reward), v(exchange), v(logprobs), v(update), v(draft_gap), v(sync),
        v(checkpoint), v(regroup), v(restart), v(decoding), v(idle), v(draft_training),
        v(gradients), v(dead), v(responses), v(truncated), v(migrated), v(lost_workers),
        v(wasted_tokens), v(tokens), v(updated_tokens), v(trained_tokens);
  }
  void add(const StepReport& more);

  // Tokens per sequence and engine step that drafted for it.
  double acceptance_length() const;
};

class Simulation {
 public:
  // An activity of a worker in virtual time. The lane is "decode"; while it is idle in the rollouts
  // "gradients", "draft" or, unused, "lost"; or after them "reward", "exchange", "logprobs",
  // "draft", "update", "sync", "checkpoint", "regroup" or "restart". A dead worker has none.
  using Observer = std::function<void(int64_t worker, const char* lane, double start, double end)>;

  // InputError: options that contradict each other; a model that does not fit.
  Simulation(const SimulateOptions& options, const Way& way, Observer observer = {});

  bool is_done() const { return step_ == options_.total_training_steps; }
  StepReport run_step();

 private:
  struct Group {
    int64_t step = 0, prompt = 0;        // that began it
    std::vector<double> generated = {};  // [sample] before this step; empty: nothing
    int64_t unfinished = 0;              // responses
    double scored_at = 0;                // its last response so far
    double gradients = 0;                // seconds of its update that idle workers computed
    int64_t gradients_at = -1;           // the worker that has them
  };
  struct Finished {
    SimulatedSequence sequence;
    int64_t source = 0;  // group or migration
  };
  struct Worker {
    std::unique_ptr<SimulatedEngine> engine;
    std::optional<cluster::WorkerProtocol> protocol;
    double slowness = 1;
    bool is_idle = false, is_awake = false;  // awake: in the queue of wake-ups
    double idle_since = 0, may_train_since = -1;
    double done_at = -1;                         // with the round; -1: it is not
    double lost_at = -1;                         // -1: it is not
    double busy_until = 0;                       // its engine step
    int64_t share = 0, taken = 0;                // groups in this round
    std::map<int64_t, int64_t> unfinished = {};  // group or migration -> sequences
    std::map<int64_t, int64_t> source_of = {};   // group -> group or migration
    std::vector<int64_t> whole_groups = {};  // finished here, in this step; gradients not computed
    std::vector<Finished> finished = {};     // responses of this step, if workers may be lost
    double trained_tokens = 0;               // of the draft model, in this step
    int64_t reported_sequences = 0;
    int64_t steps_since_report = 0;
    double decoding = 0, idle = 0, draft_training = 0, gradients = 0;

    bool is_lost() const { return lost_at >= 0; }
  };
  struct WakeUp {
    double at = 0;
    int64_t order = 0;
    int64_t worker = 0;
    bool operator>(const WakeUp& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };

  void make_coordinator();
  // With a new engine; after a loss, again.
  void start_worker(int64_t index);
  void begin_step();
  // Rollouts, rewards and exchange, again and again until no response is missing.
  void roll_out();
  void begin_round(std::vector<int64_t> pending);
  void run_round();
  void end_round();
  // Groups that are not complete, to the next step.
  void leave_unfinished_groups();
  void keep_progress(const SimulatedSequence& sequence, double tokens);
  void wake(int64_t index);
  void wake_at(int64_t index, double at);
  // The share of the other workers that compute while this one does.
  double computing_neighbours(int64_t index) const;
  void collect(Worker& worker);
  void take_groups(Worker& worker);
  void start_group(Worker& worker, int64_t group);
  // What is left of a group.
  std::vector<SimulatedSequence> sequences_of(int64_t index) const;
  void migrate_or_report(Worker& worker);
  void exchange_messages();
  void deliver(const std::vector<cluster::WorkerCommand>& commands);
  void account_idle(int64_t index);
  double compute_gradients(Worker& worker, double seconds);
  bool prefers_gradients() const;
  std::vector<double> pack_costs(const Group& group) const;
  // What follows the rollouts: on the workers that rolled out, or on others.
  void train();
  void train_on_other_workers();
  double reward_seconds() const { return std::max(0.0, scores_.last() - now_); }
  double exchange_seconds() const;
  double logprob_seconds() const;
  double update_seconds() const;
  // Of the workers that train, the lost ones not included.
  std::vector<double> trainers() const;
  // Also takes what the policy's update costs the draft model.
  void train_draft_model();
  // Lets the seconds of a phase after the rollouts pass, and returns them.
  double advance(const char* lane, double seconds);
  // The same for a phase that ends with a collective: after a loss the others repeat it.
  double advance_together(const char* lane, const std::function<double()>& seconds);

  // Lost workers: simulation_losses.cpp.
  int64_t living() const { return rolling_out_ - lost_; }
  void join_again();
  // When the coordinator knows of the next loss; infinity: of all.
  double next_notice() const;
  // Lets a loss happen, or the coordinator know of one: what is first, and not after `now`.
  bool try_lose(double now);
  void lose(int64_t index, double at);
  void lose_engine(Worker& worker);
  void lose_response(const Finished& finished, double wasted);
  // The groups of which lost workers had finished responses, without any response from now on.
  std::vector<int64_t> take_lost_groups();
  void regroup();
  void save_checkpoint();
  void restart();

  const SimulateOptions options_;
  const Way way_;
  const int64_t rolling_out_;  // workers; the others train, or if there are none, the same
  const Observer observer_;
  const Workload workload_;
  const CostModel costs_;
  DraftTrees trees_;
  SimulatedEngine::Scratch scratch_;  // of whichever engine has its turn
  const speculation::CostTable table_;
  std::optional<cluster::Coordinator> coordinator_;
  std::vector<Worker> workers_;           // that roll out
  std::vector<double> trainer_slowness_;  // [worker that trains]

  int64_t step_ = 0, rounds_ = 0;  // rounds: of rollouts, so far
  double now_ = 0, rollout_began_ = 0, round_began_ = 0;
  std::priority_queue<WakeUp, std::vector<WakeUp>, std::greater<>> wake_ups_;
  int64_t orders_ = 0;
  std::vector<cluster::Event> outbox_;                      // to the coordinator
  std::vector<std::vector<SimulatedSequence>> migrations_;  // of the round; see start_group()
  std::vector<int64_t> pending_;   // groups of the round; the coordinator numbers them so
  std::vector<Group> groups_;      // of the step; after the rollouts: those that are trained
  std::vector<Group> unfinished_;  // that continue in the next step
  int64_t complete_ = 0;           // of groups_
  ScoreQueue scores_;
  double training_left_ = 0;  // one step off: seconds of the step before
  StepReport report_;

  LossSchedule losses_;
  std::deque<Loss> notices_;  // losses that the coordinator does not know of, in order
  bool may_lose_ = false;     // there are losses to come, or have been some
  int64_t lost_ = 0;          // workers
  bool must_regroup_ = false;
  std::optional<double> ended_at_;  // worker 0 was lost
  CheckpointDisk disk_;

  bool trains_ = false;  // in this step
  drafter_training::DriftTrigger trigger_;
  double draft_tokens_ = 0;  // that the draft model is trained on, less what drift took
  double draft_model_share_ = 0;
  double idle_seconds_ = 0, trained_seconds_ = 0;  // of all workers and steps before this one
};

}  // namespace tlt::simulate
