// IdleTrainer: decides when this worker trains the draft model of an RL run, and trains it in
// slices of bounded time while the worker is idle: on hidden states of the rollouts, which it
// collects.
//
// Each worker trains a copy of its own, starting from the published draft model, while it is idle:
// joining, leaving and interruptions need no other worker. After the rollouts publish() averages
// the copies, weighted by the tokens they were trained on; then every worker has the same draft
// model again.
//
// Owns       the draft buffer, the training copy with its optimizer, the unfinished train step, the
//            trigger that decides whether an RL step trains.
// Borrows    the timeline, and through the draft model the target (read only).
// Not here   one train step (draft_trainer.h); when a worker is idle (rl/rollout_phase.h,
//            cluster/coordinator.h); metrics (rl/idle_report.h).
// Threading  engine thread only.
// Errors     an error in collecting or training turns both off on this worker: one warning,
//            is_off(). The worker still takes part in publish(), and the run continues.
//
//   IdleTrainer trainer(drafter, training, options, /*is_warm=*/true);
//   Engine engine(model, engine_options, stop_string, &trainer, speculation);
//   trainer.begin_step(step);
//   … rollouts; trainer.try_slice() while the worker is idle …
//   const IdleStep done = trainer.end_step(comm, /*decode_seconds=*/0);   // all workers together
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/timeline.h"
#include "cluster/comm.h"
#include "drafter/eagle/draft_network.h"
#include "drafter_training/acceptance_probe.h"
#include "drafter_training/draft_buffer.h"
#include "drafter_training/draft_trainer.h"
#include "drafter_training/drift_trigger.h"
#include "drafter_training/idle_options.h"
#include "drafter_training/part_times.h"
#include "model/safetensors.h"
#include "train/checkpoint.h"

namespace tlt::drafter_training {

// Training of this worker since the last take_stats().
struct IdleStats {
  double used_seconds = 0;
  double longest_slice = 0;
  int64_t steps = 0;
  int64_t skipped_steps = 0;  // more steps, without effect because their gradient is invalid
  int64_t tokens = 0;
  DraftTrainStats last_step = {};
};

// Measurements of a draft model on held-out sequences of all workers.
struct HeldOutFigures {
  DraftSums sums;
  Acceptance acceptance;

  double tokens_per_forward() const { return acceptance.tokens_per_forward(); }
};

// Result of publish(); the same on every worker.
struct PublishReport {
  bool was_trained = false;  // by any worker since the last publish()
  bool was_published = false;
  int64_t version = 0;  // in use after the call
  int64_t tokens = 0;   // tokens that the workers' copies were trained on
  double seconds = 0;   // of their training, summed
  int64_t workers = 0;  // workers that have trained
  int64_t workers_off = 0;
  HeldOutFigures before = {}, after = {};  // of the draft model in use; of the trained one
};

// Result of end_step().
struct IdleStep {
  IdleStats idle = {};       // this worker's training while it was idle
  IdleStats gap = {};        // a single worker's training after its rollouts
  int64_t used_version = 0;  // of the draft model that the rollouts used
  PublishReport publish = {};
  HeldOutFigures frozen = {};  // of the frozen copy (frozen_after_steps)
};

class IdleTrainer final : public rollout::HiddenStateObserver {
 public:
  // The file of a checkpoint's state folder that has save().
  static constexpr const char* kStateFile = "spot.json";

  // `drafter`: the draft model in use; publish() changes its weights. `is_warm`: it was loaded, not
  // initialized randomly.
  IdleTrainer(std::shared_ptr<drafter::DraftNetwork> drafter, const DraftTrainOptions& training,
              const IdleTrainOptions& options, bool is_warm, const Clock& clock = steady_clock());
  ~IdleTrainer() override;

  // Collects hidden states in the draft buffer.
  rollout::Layers layers() const override { return buffer_.layers(); }
  bool is_open() const override { return !is_off_ && buffer_.is_open(); }
  void on_hidden_states(uint32_t prompt_id, uint32_t sample, int32_t position, const Rows& hidden,
                        std::span<const int32_t> tokens) override;

  void set_timeline(Timeline* timeline) { timeline_ = timeline; }

  // Call before the rollouts of RL step `step`, counted from 0.
  void begin_step(int64_t step);
  // Trains for about options.slice_milliseconds, less if a train step ends. Returns false if this
  // RL step does not train, there is nothing to train on, or training is off.
  [[nodiscard]] bool try_slice();
  // The relative gain in acceptance length that a second of training is expected to give in this RL
  // step; infinity: not known, or trained at any rate (trigger interval).
  double acceptance_gain() const;
  // Counts the worker seconds of an RL step: idle, and training the draft model meanwhile.
  void add_idle(double idle_seconds, double trained_seconds);
  // Of the idle time of all RL steps before this one: in which workers trained the draft model.
  double trained_share() const;
  // Interrupts training because there is work; the unfinished train step is kept.
  void pause();
  // If two workers together have at most this many unfinished sequences, those of one migrate to
  // the other, so that it becomes idle earlier. 0: never; -1: as many as hardly slow the other
  // down, as the tuner predicts.
  int64_t consolidate_below() const { return trains_ ? options_.consolidate_below : 0; }
  // Call after the rollouts; collective. Publishes and measures. A worker that alone has an engine,
  // and so no idle time, trains first, for a share of `decode_seconds`; 0 on others.
  IdleStep end_step(cluster::Comm& comm, double decode_seconds);

  // Averages what the workers learned and makes it the draft model, unless its acceptance is lower
  // than that of the one in use: then that one stays and training restarts from it. Collective:
  // all workers call it, between rollouts.
  PublishReport publish(cluster::Comm& comm);
  // Measures the draft model in use, or another of its shape. Collective.
  HeldOutFigures measure(cluster::Comm& comm) { return measure(*drafter_, comm); }
  HeldOutFigures measure(const drafter::DraftNetwork& network, cluster::Comm& comm);

  const DraftBuffer& buffer() const { return buffer_; }
  bool is_off() const { return is_off_; }
  int64_t version() const { return version_; }
  int64_t optimizer_steps() const { return trainer_.optimizer().steps(); }
  IdleStats take_stats() { return std::exchange(stats_, {}); }

  // --- checkpoints (idle_trainer_files.cpp) ---

  // Gathers the draft buffers if save_buffer is set; collective, before snapshot() on rank 0.
  void gather_buffers(cluster::Comm& comm);
  // Copies the draft model, its optimizer state and the gathered buffers. The function writes them
  // into a checkpoint's folder, on any thread.
  std::function<void(const std::string& folder)> snapshot();
  // Versions, counts and the trigger's state, as JSON: the contents of kStateFile.
  std::string save() const;
  // Resumes from a checkpoint; keeps the present draft model if the checkpoint has none.
  void resume(const train::CheckpointPlace& checkpoint, const cluster::Comm& comm);
  // Writes the draft model in use.
  void write_drafter(const std::string& folder) const;

  // Copies of the trained tensors and their moments; load() resumes from them, in the training copy
  // and in the draft model. It throws InputError if they are of another draft model.
  std::vector<model::TensorSource> optimizer_state() const;
  void load(const std::vector<std::pair<std::string, at::Tensor>>& state, int64_t optimizer_steps,
            int64_t version);

 private:
  // What the workers have learned together.
  struct Mean {
    std::vector<std::pair<std::string, at::Tensor>> state;  // of the optimizer
    int64_t steps = 0;                                      // the most of a worker
  };

  template <class Call>
  void guard(const Call& call);
  bool advance();
  bool begin_train_step();
  void finish_train_step();
  int64_t slice_tokens() const;
  double next_part_seconds() const;
  void train_for(double seconds);

  Mean average(cluster::Comm& comm, double total_tokens) const;
  void restart_training();
  HeldOutFigures measure_copy(cluster::Comm& comm);
  bool is_better(const PublishReport& report) const;
  void freeze_when_due();

  const std::shared_ptr<drafter::DraftNetwork> drafter_;
  const DraftTrainOptions training_;
  const IdleTrainOptions options_;
  const Clock& clock_;
  Timeline* timeline_ = nullptr;
  DraftBuffer buffer_;
  DriftTrigger trigger_;
  double idle_seconds_ = 0, trained_seconds_ = 0;  // of all workers and RL steps
  bool trains_ = false;                            // whether this RL step trains

  const std::unique_ptr<cluster::Comm> alone_;  // of size 1: a train step needs no other worker
  const std::unique_ptr<drafter::DraftNetwork> copy_;
  DraftTrainer trainer_;
  AcceptanceProbe probe_;

  bool has_begun_ = false;  // there is an unfinished train step
  int64_t packs_run_ = 0;   // of the unfinished train step
  double step_began_ = 0;   // or was resumed, in the clock's seconds
  PartTimes times_;
  bool is_off_ = false;
  int64_t version_ = 0;
  int64_t unpublished_tokens_ = 0;
  double unpublished_seconds_ = 0;
  IdleStats stats_;

  // RL steps with training after which the frozen copy is taken; nullopt: none is.
  const std::optional<int64_t> freeze_after_;
  int64_t trained_steps_ = 0;                            // RL steps with training
  std::shared_ptr<const drafter::DraftNetwork> frozen_;  // null: not yet
  std::vector<std::string> gathered_buffers_;
};

}  // namespace tlt::drafter_training
