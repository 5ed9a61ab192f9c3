// RlStep: an RL step on random prompts, for benchmarks: the engine generates responses of a fixed
// length, the trainer updates with random advantages (GRPO loss, one optimizer step).
//
// Owns       an engine and a trainer.
// Borrows    the policy, which is trained.
// Not here   statistics and reports (bench_train.cpp, bench_growth.cpp).
//
//   RlStep step(policy, {.prompts = 8, .samples = 8}, {}, /*steps=*/3);
//   for (uint32_t i = 0; i < 3; ++i) step.run(i).train_seconds …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "cluster/comm.h"
#include "rollout/engine.h"
#include "train/trainer.h"

namespace tlt::bench {

struct StepShape {
  int64_t prompts = 8, samples = 8, prompt_tokens = 64, new_tokens = 128;

  int64_t responses() const { return prompts * samples; }
  // InputError: invalid sizes, by the flags --prompts, --samples, --prompt-tokens and --new-tokens.
  void check(const model::ModelConfig& config) const;
};

struct StepResult {
  double rollout_seconds = 0;
  double train_seconds = 0;
  train::TrainStats stats;

  double seconds() const { return rollout_seconds + train_seconds; }
};

class RlStep {
 public:
  RlStep(const model::PolicyModel& policy, const StepShape& shape,
         const rollout::EngineOptions& engine, int64_t steps, const Clock& clock = steady_clock());

  // `index` counts the steps from 0; each has its own uniforms and advantages.
  StepResult run(uint32_t index);

 private:
  std::vector<train::TrainSample> roll_out(uint32_t index);

  const model::PolicyModel& policy_;
  const StepShape shape_;
  const Clock& clock_;
  const std::unique_ptr<cluster::Comm> comm_;
  rollout::Engine engine_;
  train::Trainer trainer_;
};

}  // namespace tlt::bench
