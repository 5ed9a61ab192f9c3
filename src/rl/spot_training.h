// SpotTraining: the adaptive drafter of a run: collects the rollouts' hidden states, trains the
// drafter while this worker has nothing to roll out, publishes it after each step's rollouts, and
// accounts for the time.
//
//   drafter/idle_seconds, used_seconds, lost_seconds   this step, all workers: available = used +
//                                                      lost; worker_<i>/… of each
//   drafter/preemption_seconds/median, max             from "there is work" to the engine's step
//   drafter/steps, tokens, loss …                      of the training; the losses of one worker
//   drafter/<figure>/before, after, frozen             on held-out responses: the drafter in use,
//                                                      the trained one, one that stays as it was
//                                                      early in the run (compare_frozen); figures:
//                                                      top1_accuracy,
//                                                      top3_accuracy, acceptance_length,
//                                                      expected_acceptance
//   drafter/trained, published, refused, version       version: in use from now on
//   speculation/drafter_version                        in use in this step's rollouts: the one that
//                                                      the step's acceptance figures are about
//
// Owns       the draft buffer, the trainer, whether training pays.
// Borrows    the drafter's network, which it changes between rollouts.
// Not here   how a slice is trained (spot/spot_trainer.h); who may train (cluster/coordinator.h).
// Threading  engine thread only.
//
//   SpotTraining spot(network, options.speculative.train);
//   Engine engine(model, options, stop_text, spot.tap(), speculation);
//   spot.begin_step(step);
//   … rollouts; spot.try_slice() while there is nothing to roll out …
//   spot.end_step(comm, times, metrics);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/timeline.h"
#include "cluster/comm.h"
#include "data/dataset.h"
#include "model/draft_network.h"
#include "model/policy_model.h"
#include "rl/idle_work.h"
#include "rl/rollout_phase.h"
#include "rl/run_options.h"
#include "spot/draft_buffer.h"
#include "spot/drift_trigger.h"
#include "spot/spot_trainer.h"
#include "train/checkpoint.h"

namespace tlt::rl {

// The EAGLE network that a run drafts with: that of speculative.eagle.spec_model_path; without one,
// where it is trained on the way, one of speculative.train.init and algorithm. Null: none drafts.
// A new eagle3 drafter's head has the tokens that are frequent in the prompts, then the lowest
// ones, which a tokenizer learned first: what responses are made of is not known yet, and a run
// that goes on finds the same ones.
std::shared_ptr<model::DraftNetwork> make_draft_network(const RunOptions& options,
                                                        const model::PolicyModel& model,
                                                        const data::Dataset& prompts);

// Of a checkpoint: how far the drafter is.
inline constexpr const char* kSpotText = "spot.json";

class SpotTraining final : public IdleWork, private rollout::HiddenStateObserver {
 public:
  // `is_warm`: the network was loaded, not made from random weights.
  SpotTraining(std::shared_ptr<model::DraftNetwork> network, const SpeculativeTrainOptions& options,
               bool is_warm);

  // For the engine. What goes wrong in it ends the collecting, not the rollout.
  rollout::HiddenStateObserver* tap() { return this; }
  void set_timeline(Timeline* timeline);

  // Before the rollouts of step `step`, counted from 0.
  void begin_step(int64_t step);
  [[nodiscard]] bool try_slice() override;
  void pause() override { trainer_.pause(); }
  int64_t consolidate_below() const override {
    return trains_ ? options_.spot.consolidate_below : 0;
  }
  // After the rollouts; all workers together. One worker alone trains here first: it had no idle
  // time.
  void end_step(cluster::Comm& comm, const PhaseTimes& times, Metrics& metrics);

  // Copies of the drafter, its optimizer and, where options say so, the buffers that gather() left
  // here, as files of a checkpoint, to be written by any thread.
  std::function<void(const std::string& folder)> snapshot();
  // All workers together, before the first one's snapshot().
  void gather(cluster::Comm& comm);
  std::string save() const;
  // Goes on from a checkpoint; from the drafter it has where that checkpoint has none.
  void resume(const train::CheckpointPlace& place, const cluster::Comm& comm);
  // Writes the drafter in use.
  void write_drafter(const std::string& folder) const;

 private:
  struct Ledger;

  rollout::Layers layers() const override { return buffer_.layers(); }
  void offer(uint32_t prompt_id, uint32_t sample, int32_t position, const at::Tensor& hidden,
             std::span<const int32_t> tokens) override;

  void train_in_gap(const PhaseTimes& times);
  void freeze_when_due();
  void report_times(cluster::Comm& comm, const Ledger& mine, Metrics& metrics) const;
  void report_publish(const spot::PublishReport& report, Metrics& metrics) const;
  // `moment`: before, after or frozen.
  static void report_figures(const spot::HeldOutFigures& figures, const char* moment,
                             Metrics& metrics);

  const std::shared_ptr<model::DraftNetwork> network_;
  const SpeculativeTrainOptions options_;
  spot::DraftBuffer buffer_;
  spot::SpotTrainer trainer_;
  spot::DriftTrigger trigger_;
  bool trains_ = false;   // in this step
  bool collects_ = true;  // until it has failed
  std::vector<std::string> gathered_;
  Timeline* timeline_ = nullptr;

  // Training steps after which the copy that stays as it is is taken; nullopt: none is.
  const std::optional<int64_t> freeze_after_;
  int64_t trained_steps_ = 0;
  std::shared_ptr<const model::DraftNetwork> frozen_;  // null: not yet
};

}  // namespace tlt::rl
