// Metrics of the idle training of an RL step, of all workers:
//
//   drafter/idle_seconds, used_seconds,                this step: idle = used for training of the
//     gradient_seconds, reference_seconds,             draft model + early gradients + reference
//     lost_seconds                                     logprobs for them + lost; worker_<i>/…: by
//                                                      worker
//   drafter/gap_seconds                                a single worker's training, after its
//                                                      rollouts
//   drafter/preemption_seconds/median, max             from new work to the next engine step
//   drafter/steps, tokens, loss …                      of the training; losses of one worker
//   drafter/<figure>/before, after, frozen             on held-out responses: the draft model in
//                                                      use, the trained one, and a copy from early
//                                                      in the run (frozen_after_steps); figures:
//                                                      top1_accuracy, top3_accuracy,
//                                                      acceptance_length, expected_acceptance
//   drafter/trained, published, refused, version       version: in use after this step
//   speculation/drafter_version                        in use in this step's rollouts, to which the
//                                                      step's acceptance metrics belong
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/metrics.h"
#include "cluster/comm.h"
#include "drafter_training/idle_trainer.h"
#include "rl/rollout_phase.h"

namespace tlt::rl {

// `step`: what IdleTrainer::end_step() returned; `buffer`: that trainer's. All workers together.
void report_idle_step(const drafter_training::IdleStep& step,
                      const drafter_training::DraftBuffer& buffer, const PhaseTimes& times,
                      cluster::Comm& comm, Metrics& metrics);

}  // namespace tlt::rl
