// RunFolder: where a run leaves its traces, written by rank 0; the other workers only
// read.
//
//   run.json            whose run it is (run_identity.h)
//   options.toml        the resolved options; runs again
//   metrics.jsonl       numbers by step, and tensorboard/
//   rollouts/000001.jsonl, validation/000010.jsonl   responses (verl's dump)
//   checkpoints/step_000010, latest                  train/checkpoint.h
//   policy/, drafter/   what tlt sft and tlt draft have made
//   log.txt, timeline.json, curve.svg, timeline.svg, summary.txt, example_prompt.jsonl
//
// Owns       the lock of the folder, the writers.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/files.h"
#include "base/metrics.h"
#include "cluster/comm.h"
#include "data/dataset.h"
#include "rl/rollout.h"
#include "rl/run_identity.h"
#include "rl/run_options.h"
#include "train/sample.h"

namespace tlt::rl {

// Scored responses and what was learned from them.
struct DumpedStep {
  int64_t step = 0;
  std::span<const data::Prompt> prompts;
  std::span<const Rollout> rollouts;
  std::span<const train::TrainSample> samples = {};  // one per rollout; empty: validation
};

class RunFolder {
 public:
  // All workers together, once everything else that can fail has been loaded: a start that fails
  // leaves no folder. With resume_mode=disable the run that is there is moved aside: runs/x becomes
  // runs/x.1. InputError when a running run has the folder, or when the run in it is another one
  // and has done a step. `identity`: of rank 0; the others' is not looked at.
  RunFolder(const RunOptions& options, const RunIdentity& identity, cluster::Comm& comm);

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }

  // Drops what was written after `step`: the run goes on from there.
  void start(const RunOptions& options, int64_t step);

  void write_metrics(int64_t step, const Metrics& metrics);
  // Draws curve.svg from the metrics so far, timeline.svg from timeline.json.
  void draw();
  // verl's rollout dump: input, output, gts, score, step, the advantage (mean over the response's
  // tokens) and the reward's extras.
  void write_rollouts(const DumpedStep& step, const data::Tokenizer& tokenizer);
  // The same of a validation after `step` steps, in validation/, without advantages.
  void write_validation(const DumpedStep& step, const data::Tokenizer& tokenizer);

 private:
  void take(const RunOptions& options, const RunIdentity& identity);
  void write_dump(const std::string& name, const DumpedStep& dumped,
                  const data::Tokenizer& tokenizer);

  const std::string path_;
  const bool is_writer_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<MetricsWriter> metrics_;
};

}  // namespace tlt::rl
