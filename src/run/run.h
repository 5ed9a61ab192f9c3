// Run: the part of a run that tlt train, sft, dpo and draft have in common: it locks the run folder,
// resumes from the last checkpoint, counts, reports and saves steps, and ends with an exit code.
//
// Owns       the run folder, the checkpoint writer, the progress of the run (loop_state.h), the
//            watchdog.
// Borrows    options and run context.
// Not here   what a step does, and which of its state is saved (rl_loop.h, example_loop.h,
//            draft_loop.cpp).
// Threading  engine thread only. All workers call the same functions in the same order.
//
//   Run run("sft", options, context);                  // refuses the folder of another run
//   run.resume(trainer.optimizer(), sampler);
//   run.start(/*total_steps=*/100);
//   if (!run.begin("16 examples per step")) return 0;  // all steps are done
//   while (run.has_next_step()) {
//     … a step …
//     run.advance(sampler.cursor());
//     if (run.is_due(options.trainer.test_freq)) … validate …
//     run.report(metrics);
//     if (run.is_save_due()) run.save(trainer.optimizer(), add_policy);
//   }
//   … write the results into the run folder …
//   if (run.is_unsaved()) run.save(trainer.optimizer(), add_policy);
//   return run.end();
//
// Order      a step's metrics and the run's results are written before their checkpoint, so a
//            resumed run has the metrics of every step, and a complete one has its results.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/progress.h"
#include "base/watchdog.h"
#include "run/loop_state.h"
#include "run/report/run_summary.h"
#include "run/run_context.h"
#include "run/run_folder.h"
#include "run/run_identity.h"
#include "run/run_options.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace tlt::run {

// Optimizer steps that an update has left out because their gradients are invalid.
struct SkippedSteps {
  int64_t count = 0;       // in this update
  std::string fault;       // of the last one
  int64_t in_row = 0;      // since the last finished one: Optimizer::skipped_in_row()
  std::string batch = {};  // file with the batch; empty: none was written
  std::string remedy;      // what helps if there are too many
};

class Run {
 public:
  // Locks the folder (run_folder.h); construct it after all else that can fail. `more`:
  // "name = value" lines that must be equal to resume (run_identity.h).
  Run(const std::string& command, const RunOptions& options, const RunContext& context,
      const std::string& more = "");

  // Loads the newest complete checkpoint into optimizer, adapter and sampler. nullopt: there is
  // none, so the run starts at step 0. InputError: the workers see different checkpoints.
  // `total_steps`: above 0, one of save_within_step() counts too, if its step is one of these.
  std::optional<train::CheckpointPlace> resume(train::Optimizer& optimizer, data::Sampler& sampler,
                                               int64_t total_steps = 0);

  // Drops what the folder has of later steps, and opens it for writing.
  void start(int64_t total_steps);

  // Logs the steps to do and starts the trackers; `step_size` describes one step. False: all steps are done, which it logs.
  // From here on a watchdog ends the process if it hangs (base/watchdog.h).
  [[nodiscard]] bool begin(const std::string& step_size);

  // Whether there is another step to do. False on all workers if any was interrupted.
  bool has_next_step() const;

  // Counts a step that used `gen_batches` generation batches.
  void advance(const data::SamplerCursor& cursor, int64_t gen_batches = 1);

  // True every `frequency` steps and at the last one; 0: never.
  bool is_due(int64_t frequency) const;
  bool is_save_due() const { return !is_complete() && is_due(options_.trainer.save_freq); }
  // Whether checkpoints are enabled and the last step has none.
  bool is_unsaved() const;

  // Saves a checkpoint of the present step; `add` adds the networks, on rank 0 only.
  void save(const train::Optimizer& optimizer,
            const std::function<void(train::CheckpointParts& parts)>& add);
  // The same within the next step, some of whose optimizer steps are done; only the same options
  // resume from it. Nothing without checkpoints (trainer.save_freq=0).
  void save_within_step(const train::Optimizer& optimizer,
                        const std::function<void(train::CheckpointParts& parts)>& add);

  // Waits until the checkpoints are on the disk.
  void drain() {
    if (checkpoints_) checkpoints_->drain();
  }

  // After an update and before advance(): a warning if steps were skipped. Throws Error, on all
  // workers, if there are more in a row than the limit; the step is then not counted.
  void check_skipped(const SkippedSteps& skipped) const;
  // The same for an update of policy or critic; if steps were skipped, writes its batch into the
  // folder. `rate`: the option of its learning rate.
  void check_skipped(const train::TrainStats& stats, const train::Optimizer& optimizer,
                     const DumpedStep& batch, const std::string& rate = "actor.optim.lr");

  // Sets timing_s/step, perf/* and training/* for a step of `seconds` and `tokens`, and
  // timing_s/save_checkpoint if a checkpoint was saved since the last step.
  void report_pace(double seconds, double tokens, Metrics& metrics);

  // Writes the step's metrics, main/… first, and logs a line for the step: at most one per second,
  // but always for validations and the last step. Does nothing if `metrics` is empty.
  void report(const Metrics& metrics);

  // On a terminal, shows the progress of the run and `doing`, the phase of the step, until end().
  void show(const std::string& doing);

  // Waits for the checkpoint writer and the trackers; an incomplete run gets its report. Returns the exit code: 0,
  // or 130 or 143 if the run was interrupted, which it logs.
  int end();
  // The same for a run that continues with `workers` of them: nothing to report, and the trackers
  // continue their runs.
  void pause(int64_t workers);

  // Logs and writes the summary of a complete run and its report, and writes `example_prompt`, a
  // row for `tlt generate`. Fills in the folder and the program in `facts`. Rank 0 only.
  void summarize(RunFacts facts, const nlohmann::json& example_prompt);

  RunFolder& folder() { return folder_; }
  const LoopState& state() const { return state_; }
  int64_t step() const { return state_.step; }
  bool is_complete() const { return state_.step >= total_steps_; }
  bool has_new_steps() const { return state_.step > first_step_; }
  double seconds() const { return watch_.seconds(); }  // since begin()

 private:
  std::optional<train::CheckpointParts> parts_of(const train::Optimizer& optimizer) const;
  void close(int exit_code);
  std::optional<double> eta_seconds() const;

  const RunOptions& options_;
  const RunContext& context_;
  const RunIdentity identity_;  // rank 0
  RunFolder folder_;
  std::unique_ptr<train::CheckpointWriter> checkpoints_;  // rank 0
  LoopState state_;
  bool is_resumed_ = false;
  int64_t total_steps_ = 0, first_step_ = 0, saved_step_ = -1;
  double save_seconds_ = 0;  // of a checkpoint saved since the last step; 0: none
  Stopwatch watch_;
  std::optional<Watchdog> watchdog_;                             // set by begin()
  std::optional<Progress> progress_;                             // set by show() on a terminal
  double last_line_ = -std::numeric_limits<double>::infinity();  // time of the last line, by watch_
};

}  // namespace tlt::run
