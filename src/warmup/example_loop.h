// ExampleLoop: a run of optimizer steps over the rows of a dataset: what `tlt sft` and `tlt dpo`
// share. Checkpoints, resume and exit codes are those of tlt train (run.h).
//
//   rows -> Objective (samples of a step, loss, validation) -> Trainer -> <run folder>/policy
//
// Owns       run context, objective, sampler, trainer, run.
// Borrows    the options.
// Threading  engine thread only. All workers call the same functions in the same order.
//
//   return ExampleLoop(options, launch, {"sft", "example", make_sft_objective}).run();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "cluster/launch.h"
#include "data/example_maker.h"
#include "data/sampler.h"
#include "run/policy_files.h"
#include "run/run.h"
#include "run/run_context.h"
#include "run/run_options.h"
#include "train/sample.h"
#include "train/trainer.h"

namespace tlt::warmup {

// What a run learns from.
class Objective {
 public:
  virtual ~Objective() = default;

  virtual train::LossKind loss() const = 0;
  virtual const std::vector<data::SamplerPart>& parts() const = 0;
  virtual int64_t left_out() const = 0;  // rows that are too long
  // The teacher of distillation, with whose distributions the loss compares the policy's; null: none.
  virtual const model::PolicyModel* teacher() const { return nullptr; }

  // Called once, before a checkpoint is loaded: the model has the weights that the run starts from.
  // `rows`: those of all steps, each once. False: interrupted, and the run ends.
  [[nodiscard]] virtual bool try_prepare(const std::string& /*run_folder*/,
                                         const std::vector<int64_t>& /*rows*/) {
    return true;
  }
  // The samples of these rows, in order.
  virtual std::vector<train::TrainSample> samples(std::span<const int64_t> rows) const = 0;

  // Sets val/… of all held-out rows; summed in their order, so the values do not depend on the
  // workers. `show` gets the progress, on a terminal. Does nothing without held-out rows.
  virtual void validate(Metrics& metrics,
                        const std::function<void(const std::string& doing)>& show) const = 0;

  // A prompt for the commands of the summary.
  virtual std::vector<int32_t> example_prompt() const = 0;
};

using MakeObjective =
    std::function<std::unique_ptr<Objective>(const run::RunOptions&, const run::RunContext&)>;

struct ExampleCommand {
  const char* name;  // "sft" or "dpo", in the run's identity
  const char* row;   // "example" or "pair"
  MakeObjective make_objective;
};

class ExampleLoop {
 public:
  // Loads model and data, and locks the run folder.
  ExampleLoop(const run::RunOptions& options, const cluster::Launch& launch,
              const ExampleCommand& command);

  // To the end of the run, or of the step in which it was interrupted; writes the policy to <run
  // folder>/policy. Returns the exit code.
  int run();

 private:
  bool try_start();
  std::vector<int64_t> rows_of_all_steps() const;
  void run_step();
  void validate(Metrics& metrics);
  void save();
  void summarize();

  const run::RunOptions options_;
  const run::RunContext context_;
  const char* const row_;
  const std::unique_ptr<Objective> objective_;
  data::Sampler sampler_;
  const int64_t total_steps_;
  train::Trainer trainer_;
  const run::PolicyFiles policy_files_;
  run::Run run_;  // after all members whose construction can fail
};

// The example's tokens and the loss weights of its response, without rollout logprobs.
train::TrainSample to_sample(data::SftExample example);

// Held-out rows of a forward pass: enough to fill packs, and few enough to show progress.
inline constexpr int64_t kValidationBatch = 256;

}  // namespace tlt::warmup
