// SpotTraining: trains a run's draft model on idle workers. It collects hidden states of the
// rollouts, trains while this worker is idle, publishes the draft model after each step's rollouts,
// and reports the time used.
//
//   drafter/idle_seconds, used_seconds, lost_seconds   this step, all workers: idle = used + lost;
//                                                      worker_<i>/…: by worker
//   drafter/preemption_seconds/median, max             from new work to the next engine step
//   drafter/steps, tokens, loss …                      of the training; losses of one worker
//   drafter/<figure>/before, after, frozen             on held-out responses: the draft model in
//                                                      use, the trained one, and a copy from early
//                                                      in the run (compare_frozen); figures:
//                                                      top1_accuracy, top3_accuracy,
//                                                      acceptance_length, expected_acceptance
//   drafter/trained, published, refused, version       version: in use after this step
//   speculation/drafter_version                        in use in this step's rollouts, to which the
//                                                      step's acceptance metrics belong
//
// Owns       the draft buffer, the trainer, the trigger that decides whether a step trains.
// Borrows    the draft model's network, which it changes between rollouts.
// Not here   how a slice is trained (drafter_training/spot_trainer.h); who may train (cluster/coordinator.h).
// Threading  engine thread only.
//
//   SpotTraining spot(network, options.speculative.train, /*is_warm=*/true);
//   Engine engine(model, options, stop_string, spot.tap(), speculation);
//   spot.begin_step(step);
//   … rollouts; spot.try_slice() while the worker is idle …
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
#include "drafter/eagle/draft_network.h"
#include "drafter_training/draft_buffer.h"
#include "drafter_training/drift_trigger.h"
#include "drafter_training/spot_trainer.h"
#include "model/policy_model.h"
#include "rl/idle_work.h"
#include "rl/rollout_phase.h"
#include "run/run_options.h"
#include "train/checkpoint.h"

namespace tlt::rl {

// The draft model of a run: loaded from speculative.eagle.spec_model_path, or, without a path and
// with training during the run, made as speculative.train.init and algorithm say. Null: no draft
// model. The LM head of a new eagle3 draft model has the tokens that are frequent in the prompts,
// then those with the lowest ids, which tokenizers learn first. Responses are not known yet, and a
// resumed run chooses the same tokens.
std::shared_ptr<drafter::DraftNetwork> make_draft_network(const run::RunOptions& options,
                                                          const model::PolicyModel& model,
                                                          const data::Dataset& prompts);

// The file of a checkpoint with the state of idle training.
inline constexpr const char* kSpotText = "spot.json";

class SpotTraining final : public IdleWork, private rollout::HiddenStateObserver {
 public:
  // `is_warm`: the network was loaded, not initialized randomly.
  SpotTraining(std::shared_ptr<drafter::DraftNetwork> network,
               const run::SpeculativeTrainOptions& options, bool is_warm);

  // For the engine. An exception in it ends the collection of hidden states, not the rollout.
  rollout::HiddenStateObserver* tap() { return this; }
  void set_timeline(Timeline* timeline);

  // Call before the rollouts of step `step`, counted from 0.
  void begin_step(int64_t step);
  [[nodiscard]] bool try_slice() override;
  void pause() override { trainer_.pause(); }
  int64_t consolidate_below() const override {
    return trains_ ? options_.spot.consolidate_below : 0;
  }
  // Call after the rollouts; all workers together. A single worker, which has no idle time, trains
  // here first.
  void end_step(cluster::Comm& comm, const PhaseTimes& times, Metrics& metrics);

  // Copies the draft model, its optimizer state and, with save_buffer, the buffers from gather().
  // The function writes them into a checkpoint, on any thread.
  std::function<void(const std::string& folder)> snapshot();
  // Gathers the draft buffers; all workers together, before snapshot() on rank 0.
  void gather(cluster::Comm& comm);
  std::string save() const;
  // Resumes from a checkpoint; keeps the present draft model if the checkpoint has none.
  void resume(const train::CheckpointPlace& checkpoint, const cluster::Comm& comm);
  // Writes the draft model in use.
  void write_drafter(const std::string& folder) const;

 private:
  struct Ledger;

  rollout::Layers layers() const override { return buffer_.layers(); }
  void offer(uint32_t prompt_id, uint32_t sample, int32_t position, const at::Tensor& hidden,
             std::span<const int32_t> tokens) override;

  void train_in_gap(const PhaseTimes& times);
  void freeze_when_due();
  void report_times(cluster::Comm& comm, const Ledger& mine, Metrics& metrics) const;
  void report_publish(const drafter_training::PublishReport& report, Metrics& metrics) const;
  // `moment`: "before", "after" or "frozen".
  static void report_figures(const drafter_training::HeldOutFigures& figures, const char* moment,
                             Metrics& metrics);

  const std::shared_ptr<drafter::DraftNetwork> network_;
  const run::SpeculativeTrainOptions options_;
  drafter_training::DraftBuffer buffer_;
  drafter_training::SpotTrainer trainer_;
  drafter_training::DriftTrigger trigger_;
  bool trains_ = false;   // whether this step trains
  bool collects_ = true;  // false after an exception in the observer
  std::vector<std::string> gathered_;
  Timeline* timeline_ = nullptr;

  // Steps with training after which the frozen copy is taken; nullopt: none is.
  const std::optional<int64_t> freeze_after_;
  int64_t trained_steps_ = 0;
  std::shared_ptr<const drafter::DraftNetwork> frozen_;  // null: not yet
};

}  // namespace tlt::rl
