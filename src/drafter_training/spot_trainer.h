// SpotTrainer: trains the draft model in slices of bounded time while this worker is idle, and
// publishes the result of all workers.
//
// Each worker trains a copy of its own, starting from the published draft model, while it is idle:
// joining, leaving and interruptions need no other worker. publish() averages the copies, weighted
// by the tokens they were trained on; afterwards every worker has the same draft model again.
//
// Owns       the training copy with its optimizer, and the unfinished step.
// Borrows    the draft buffer, the timeline, and through the draft model the target (read only).
// Not here   when a worker is idle (rl/rollout_phase.h); when to train (drift_trigger.h).
// Threading  engine thread only.
// Errors     an error in training turns it off on this worker: one warning, is_off(). The worker
//            still takes part in publish(), and the run continues.
//
//   SpotTrainer trainer(drafter, buffer, options, spot_options);
//   while (!there_is_work() && trainer.try_slice()) {}
//   const PublishReport report = trainer.publish(comm);          // all workers together
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
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
#include "drafter_training/part_times.h"
#include "drafter_training/spot_options.h"
#include "model/safetensors.h"

namespace tlt::drafter_training {

// Statistics of this worker since the last take_stats().
struct SpotStats {
  double used_seconds = 0;
  double longest_slice = 0;
  int64_t steps = 0;
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
  int64_t workers = 0;  // workers that have trained
  int64_t workers_off = 0;
  HeldOutFigures before = {}, after = {};  // of the draft model in use; of the trained one
};

class SpotTrainer {
 public:
  // `drafter`: the draft model in use; publish() changes its weights.
  SpotTrainer(std::shared_ptr<drafter::DraftNetwork> drafter, DraftBuffer& buffer,
              const DraftTrainOptions& training, const SpotOptions& options,
              const Clock& clock = steady_clock());
  ~SpotTrainer();

  void set_timeline(Timeline* timeline) { timeline_ = timeline; }

  // Trains for about options.slice_milliseconds, less if a step ends. Returns false if there is
  // nothing to train on, or training is off.
  [[nodiscard]] bool try_slice();
  // Interrupts training because there is work; the unfinished step is kept.
  void pause();

  // Averages what the workers learned and makes it the draft model, unless its acceptance is lower
  // than that of the one in use: then that one stays and training restarts from it. Collective:
  // all workers call it, between rollouts.
  PublishReport publish(cluster::Comm& comm);
  // Measures the draft model in use, or another of its shape. Collective.
  HeldOutFigures measure(cluster::Comm& comm) { return measure(*drafter_, comm); }
  HeldOutFigures measure(const drafter::DraftNetwork& network, cluster::Comm& comm);

  bool is_off() const { return is_off_; }
  int64_t version() const { return version_; }
  int64_t optimizer_steps() const { return trainer_.optimizer().steps(); }
  SpotStats take_stats() { return std::exchange(stats_, {}); }

  // Copies of the trained tensors and their moments; load() resumes from them, in the training copy
  // and in the draft model.
  std::vector<model::TensorSource> snapshot() const;
  // Throws InputError if they are of another draft model.
  void load(const std::vector<std::pair<std::string, at::Tensor>>& state, int64_t optimizer_steps,
            int64_t version);
  std::vector<std::string> state_names() const;

 private:
  template <class Call>
  void guard(const Call& call);
  bool advance();
  bool begin_step();
  void finish_step();
  int64_t slice_tokens() const;
  double next_part_seconds() const;

  void average(cluster::Comm& comm, double total_tokens);
  void restart_training();
  HeldOutFigures measure_copy(cluster::Comm& comm);
  bool is_better(const PublishReport& report) const;

  const std::shared_ptr<drafter::DraftNetwork> drafter_;
  DraftBuffer& buffer_;
  const DraftTrainOptions training_;
  const SpotOptions options_;
  const Clock& clock_;
  Timeline* timeline_ = nullptr;

  const std::unique_ptr<cluster::Comm> alone_;  // a Comm of size 1: a step needs no other worker
  const std::unique_ptr<drafter::DraftNetwork> copy_;
  DraftTrainer trainer_;
  AcceptanceProbe probe_;

  bool has_begun_ = false;  // there is an unfinished step
  int64_t packs_run_ = 0;   // of the unfinished step
  double step_began_ = 0;   // or was resumed, in the clock's seconds
  PartTimes times_;
  bool is_off_ = false;
  int64_t version_ = 0;
  int64_t unpublished_tokens_ = 0;
  SpotStats stats_;
};

}  // namespace tlt::drafter_training
