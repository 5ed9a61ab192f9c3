// Run: what every run does beside learning, the same for tlt train, sft and draft: it takes its
// folder, resumes from the last checkpoint, counts its steps, reports and saves them, and ends with
// an exit code.
//
// Owns       the run folder, the writer of checkpoints, and how far the run is (loop_state.h).
// Borrows    options and workplace.
// Not here   what a step is, and what of it is saved (rl_loop.h, sft_loop.cpp, draft_loop.cpp).
// Threading  engine thread only. All workers call the same functions in the same order.
//
//   Run run("sft", options, place);                  // refuses the folder of another run
//   run.resume(trainer.optimizer(), sampler);
//   run.start(/*total_steps=*/100);
//   if (!run.begin("16 examples a step")) return 0;  // all steps are done
//   while (run.goes_on()) {
//     … a step …
//     run.advance(sampler.cursor());
//     if (run.is_due(options.trainer.test_freq)) … validate …
//     run.report(metrics);
//     if (run.is_save_due()) run.save(trainer.optimizer(), add_policy);
//   }
//   … what the run leaves in its folder …
//   if (run.is_unsaved()) run.save(trainer.optimizer(), add_policy);
//   return run.end();
//
// A step's metrics and the run's result are written before their checkpoint: a run that resumes
// from it has the metrics of every step, and one that is complete has its result.
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
#include "rl/loop_state.h"
#include "rl/run_folder.h"
#include "rl/run_options.h"
#include "rl/run_summary.h"
#include "rl/workplace.h"
#include "train/checkpoint.h"

namespace tlt::rl {

class Run {
 public:
  // Takes the folder (run_folder.h), once all else that can fail is loaded. `more`: "name = value"
  // lines that a resumed run must share (run_identity.h).
  Run(const std::string& command, const RunOptions& options, const Workplace& place,
      const std::string& more = "");

  // Loads the newest whole checkpoint into the optimizer, the adapter and the sampler. nullopt:
  // there is none; the run starts at step 0. InputError: the workers see different ones.
  std::optional<train::CheckpointPlace> resume(train::AdamW& optimizer, data::Sampler& sampler);

  // Drops what the folder has of later steps; from now on it may be written to.
  void start(int64_t total_steps);

  // Says what is to be done; `step_is`: of each step. False: nothing is left, and it says that.
  [[nodiscard]] bool begin(const std::string& step_is);

  // Whether there is another step to do; false on all workers when one was interrupted.
  bool goes_on() const;

  // A step is done, of so many generation batches.
  void advance(const data::SamplerCursor& cursor, int64_t gen_batches = 1);

  // Every `frequency` steps, and at the end; 0: never.
  bool is_due(int64_t frequency) const;
  bool is_save_due() const { return !is_complete() && is_due(options_.trainer.save_freq); }
  // Whether the last step has no checkpoint and should have one.
  bool is_unsaved() const;

  // A checkpoint of the present step; `add` adds the network on the first worker.
  void save(const train::AdamW& optimizer,
            const std::function<void(train::CheckpointParts& parts)>& add);

  // timing_s/step, perf/*, training/*: how long the step took that went through so many tokens; and
  // timing_s/save_checkpoint, of a checkpoint since the step before.
  void report_pace(double seconds, double tokens, Metrics& metrics);

  // Writes the step's metrics, with main/… in front, and says on the console what it was like: a
  // line a second at most, validations and the last step always. Nothing for no metrics.
  void report(const Metrics& metrics);

  // On a terminal: how far the run is, and what it is doing within its step, until end().
  void show(const std::string& doing);

  // Waits for the disk. The exit code: 0, or 130 or 143 for an interrupted run, which it says.
  int end();

  // The summary of a complete run, and a prompt to try its next commands with: a row of `tlt
  // generate`. Of `facts` it fills in what it knows itself. First worker only.
  void summarize(RunFacts facts, const nlohmann::json& example_prompt);

  RunFolder& folder() { return folder_; }
  const LoopState& state() const { return state_; }
  int64_t step() const { return state_.step; }
  bool is_complete() const { return state_.step >= total_steps_; }
  bool has_new_steps() const { return state_.step > first_step_; }
  double seconds() const { return watch_.seconds(); }  // since begin()

 private:
  std::optional<double> eta_seconds() const;

  const RunOptions& options_;
  const Workplace& place_;
  RunFolder folder_;
  std::unique_ptr<train::CheckpointWriter> checkpoints_;  // rank 0
  LoopState state_;
  int64_t total_steps_ = 0, first_step_ = 0, saved_step_ = -1;
  double save_seconds_ = 0;  // of the checkpoint since the last step
  Stopwatch watch_;
  std::optional<Progress> progress_;  // once show() was called on a terminal
  double last_line_ = -std::numeric_limits<double>::infinity();  // when, by the watch
};

}  // namespace tlt::rl
