// SpotTrainer: trains the drafter in slices of a bounded time while this worker has nothing to roll
// out, and publishes what all workers have learned.
//
// Each worker trains a copy of its own, from the published drafter on, for as long as it is idle:
// joining, leaving and preemption need no other worker. publish() averages the copies, weighted by
// the tokens they were trained on, and every worker has the same drafter again.
//
// Owns       the training copy with its optimizer, what a step has begun.
// Borrows    the draft buffer, the timeline, and through the drafter the target, which it reads.
// Not here   when a worker is idle (rl/rollout_phase.h); when training pays (drift_trigger.h).
// Threading  engine thread only.
// Errors     what goes wrong in training turns it off on this worker: one warning, is_off(). It
//            still takes part in publish(), and the run goes on.
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
#include "model/draft_network.h"
#include "model/safetensors.h"
#include "spot/acceptance_probe.h"
#include "spot/draft_buffer.h"
#include "spot/draft_trainer.h"
#include "spot/part_times.h"
#include "spot/spot_options.h"

namespace tlt::spot {

// Of this worker, since it was asked last.
struct SpotStats {
  double used_seconds = 0;
  double longest_slice = 0;
  int64_t steps = 0;
  int64_t tokens = 0;
  DraftStats last_step = {};
};

// Of a drafter on held-out sequences of all workers.
struct HeldOutFigures {
  DraftSums sums;
  Acceptance acceptance;

  double tokens_per_forward() const { return acceptance.tokens_per_forward(); }
};

// The same on every worker.
struct PublishReport {
  bool was_trained = false;  // by anybody since the last time
  bool was_published = false;
  int64_t version = 0;  // in use from now on
  int64_t tokens = 0;   // that the workers' copies were trained on
  int64_t workers = 0;  // that had trained
  int64_t workers_off = 0;
  HeldOutFigures before = {}, after = {};  // of the drafter in use, and of the trained one
};

class SpotTrainer {
 public:
  // `drafter`: the one that drafts; publish() changes its weights.
  SpotTrainer(std::shared_ptr<model::DraftNetwork> drafter, DraftBuffer& buffer,
              const DraftTrainOptions& training, const SpotOptions& options,
              const Clock& clock = steady_clock());
  ~SpotTrainer();

  void set_timeline(Timeline* timeline) { timeline_ = timeline; }

  // Trains for about options.slice_milliseconds, less where a part is finished. False: there is
  // nothing to learn from, or training is off.
  [[nodiscard]] bool try_slice();
  // There is work: what was begun waits.
  void pause();

  // The average of what the workers learned becomes the drafter, unless it accepts less than the
  // one in use: then that stays and training begins anew from it. All workers call it together,
  // between rollouts.
  PublishReport publish(cluster::Comm& comm);
  // How good the drafter in use is now, or another of its shape. All workers together.
  HeldOutFigures measure(cluster::Comm& comm) { return measure(*drafter_, comm); }
  HeldOutFigures measure(const model::DraftNetwork& network, cluster::Comm& comm);

  bool is_off() const { return is_off_; }
  int64_t version() const { return version_; }
  int64_t optimizer_steps() const { return trainer_.optimizer().steps(); }
  SpotStats take_stats() { return std::exchange(stats_, {}); }

  // Copies of the trained tensors and their moments; load() goes on from them, in the training copy
  // and in the drafter.
  std::vector<model::TensorSource> snapshot() const;
  // InputError when they are another drafter's.
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
  void begin_anew();
  HeldOutFigures measure_copy(cluster::Comm& comm);
  bool is_better(const PublishReport& report) const;

  const std::shared_ptr<model::DraftNetwork> drafter_;
  DraftBuffer& buffer_;
  const DraftTrainOptions training_;
  const SpotOptions options_;
  const Clock& clock_;
  Timeline* timeline_ = nullptr;

  const std::unique_ptr<cluster::Comm> alone_;  // of one worker: a step needs no other
  const std::unique_ptr<model::DraftNetwork> copy_;
  DraftTrainer trainer_;
  AcceptanceProbe probe_;

  bool has_begun_ = false;  // a step
  int64_t packs_run_ = 0;   // of it
  double step_began_ = 0;   // or went on, in the clock's seconds
  PartTimes times_;
  bool is_off_ = false;
  int64_t version_ = 0;
  int64_t unpublished_tokens_ = 0;
  SpotStats stats_;
};

}  // namespace tlt::spot
