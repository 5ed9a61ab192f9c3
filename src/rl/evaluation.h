// Evaluation: responses of a fixed policy to the rows of data.val_files, scored, by all workers
// together. A response depends only on its row, sample, seed and the sampling options: not on which
// rows are evaluated with it, on the workers or on speculation. So a part of the rows can be
// evaluated now and the rest later.
//
// Owns       model, engine and reward pool; the rows.
// Not here   statistics (reward/eval_statistics.h); files (apps/eval.cpp).
// Threading  engine thread only. All workers call the same functions in the same order.
//
//   Evaluation evaluation(options, launch);
//   for (const std::vector<int64_t>& rows : evaluation.batches(unfinished))
//     for (const run::Rollout& rollout : evaluation.run(rows)) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cluster/launch.h"
#include "data/dataset.h"
#include "rl/rollout_worker.h"
#include "run/run_context.h"
#include "run/run_options.h"

namespace tlt::rl {

class Evaluation {
 public:
  // InputError: no data.val_files, or rows that the reward cannot use.
  Evaluation(const run::RunOptions& options, const cluster::Launch& launch);

  const std::vector<data::Prompt>& prompts() const { return prompts_; }
  const run::RunContext& context() const { return context_; }

  // The rows in batches: enough to keep the engines of all workers full. The same on each of them,
  // also while some know of a lost worker and others do not.
  std::vector<std::vector<int64_t>> batches(std::span<const int64_t> rows) const;

  // rollout.val_kwargs.n responses to each of these rows, ordered by row and sample. A rollout's
  // `prompt` is an index into prompts().
  std::vector<run::Rollout> run(std::span<const int64_t> rows);

 private:
  const run::RunOptions options_;
  const std::shared_ptr<const reward::Reward> reward_;  // started before the model loads
  run::RunContext context_;
  const data::Dataset rows_;
  const int64_t batch_rows_;  // for the workers of the start
  std::vector<data::Prompt> prompts_;
  RolloutWorker worker_;
};

}  // namespace tlt::rl
