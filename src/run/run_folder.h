// RunFolder: the folder with everything a run writes. Rank 0 writes; the other workers only read.
//
//   run.json            identity of the run (run_identity.h)
//   options.toml        the resolved options and their overrides; usable as a recipe
//   metrics.jsonl       metrics by step; also tensorboard/
//   rollouts/000001.jsonl, validation/000010.jsonl   responses (verl's dump)
//   skipped/step_000012.jsonl  batch of a step with an invalid gradient
//   checkpoints/step_000010, latest                  train/checkpoint.h
//   unfinished_step     rollouts of a step that was interrupted (rl/unfinished_step.h)
//   reference_logprobs  of the pairs of tlt dpo (warmup/reference_logprobs.h)
//   policy/, drafter/   results of tlt sft, tlt dpo and tlt draft; drafter/ also of tlt train
//   trackers.json        ids of the runs of W&B, MLflow … (tracker/trackers.h)
//   log.txt, timeline.json, summary.txt, report.html, example_prompt.jsonl
//
// Owns       the lock of the folder, the writers, the trackers.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/files.h"
#include "base/metrics.h"
#include "cluster/comm.h"
#include "data/dataset.h"
#include "run/rollout.h"
#include "run/run_identity.h"
#include "run/run_options.h"
#include "train/sample.h"

namespace tlt::tracker {
class Trackers;
}

namespace tlt::run {

// Scored responses of a step or a validation, and the samples that were trained on.
struct DumpedStep {
  int64_t step = 0;
  std::span<const data::Prompt> prompts;
  std::span<const Rollout> rollouts;                 // empty: supervised fine-tuning
  std::span<const train::TrainSample> samples = {};  // one per rollout; empty: validation
};

// What a response follows: the row's prompt, or its own.
std::string text_of_prompt(const Rollout& rollout, const data::Prompt& prompt,
                           const tokenizer::Tokenizer& tokenizer);

// verl's row of a dump: input, output, gts, score, step and the reward's extras, with what `tlt
// reward` needs to score it again. `sample`: its advantage (mean over the response's tokens); null:
// none.
nlohmann::ordered_json dump_row(const DumpedStep& dumped, const Rollout& rollout,
                                const tokenizer::Tokenizer& tokenizer,
                                const train::TrainSample* sample = nullptr);

class RunFolder {
 public:
  // All workers together, after everything else that can fail, so that a failed start leaves no
  // folder. With resume_mode=disable an existing run is moved aside: runs/x becomes runs/x.1.
  // InputError: a running process has locked the folder, or it belongs to another command or has
  // steps of another run.
  // `identity`: only that of rank 0 is used.
  RunFolder(const RunOptions& options, const RunIdentity& identity, cluster::Comm& comm);
  ~RunFolder();

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string report_path() const { return path_ + "/report.html"; }

  // Drops metrics written after `step`, from which the run continues, or all of a run that is not
  // resumed; new overrides take effect.
  void start(const RunOptions& options, int64_t step, bool is_resumed);

  // Starts the trackers of trainer.logger. InputError: one does not start.
  void start_trackers(const RunOptions& options);
  // Waits, for a bounded time, until they have everything.
  void finish_trackers(int exit_code);

  // Into metrics.jsonl, TensorBoard's file and the trackers.
  void write_metrics(int64_t step, const Metrics& metrics);
  // Writes report.html (report/run_report.h) from the other files. A failure is a warning.
  void write_report();
  // Writes verl's rollout dump, with advantages.
  void write_rollouts(const DumpedStep& step, const tokenizer::Tokenizer& tokenizer);
  // The same for a validation after `step` steps, in validation/, without advantages; trackers get
  // some of them.
  void write_validation(const DumpedStep& step, const tokenizer::Tokenizer& tokenizer);

  // The batch of a step whose gradient is invalid, as write_rollouts() or, without rollouts, its
  // samples. Returns the file's path.
  std::string write_skipped(const DumpedStep& step, const tokenizer::Tokenizer& tokenizer);

 private:
  void take(const RunOptions& options);
  void write_dump(const std::string& file, const DumpedStep& dumped,
                  const tokenizer::Tokenizer& tokenizer) const;

  const std::string path_;
  const bool is_writer_;
  const RunIdentity identity_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<tracker::Trackers> trackers_;
};

}  // namespace tlt::run
