// SPDX-License-Identifier: Apache-2.0
#include "rl/evaluation.h"

#include <algorithm>

#include "base/check.h"
#include "rl/validation.h"

namespace tlt::rl {
namespace {

constexpr int64_t kFills = 4;  // of each worker's engine in a batch: its tail is a small part

// Nothing is trained, so there is no new draft model either.
run::RunOptions without_training(run::RunOptions options) {
  TLT_CHECK_INPUT(!options.data.val_files.empty(),
                  "no rows to evaluate; give --data FILE, or data.val_files in the recipe");
  options.check();
  options.speculative.train.idle.enable_drafter_training = false;
  return options;
}

int64_t batch_rows(const run::RunOptions& options, int64_t workers) {
  const int64_t slots =
      options.rollout.engine.max_running * workers / options.rollout.tensor_model_parallel_size;
  return std::max<int64_t>(1, kFills * slots / options.rollout.validation.n);
}

}  // namespace

Evaluation::Evaluation(const run::RunOptions& options, const cluster::Launch& launch)
    : options_((run::check_workers(options, launch), without_training(options))),
      reward_(start_reward(options_)),
      context_(options_, launch),
      rows_(load_rows(options_, context_, *reward_, data::Split::kValidation)),
      batch_rows_(batch_rows(options_, context_.comm->size())),
      worker_(options_, launch, context_,
              {rows_, reward_, rows_.size() * options_.rollout.validation.n}) {
  for (int64_t i = 0; i < rows_.size(); ++i) prompts_.push_back(rows_.prompt(i));
}

std::vector<std::vector<int64_t>> Evaluation::batches(std::span<const int64_t> rows) const {
  std::vector<std::vector<int64_t>> batches;
  for (const int64_t row : rows) {
    if (batches.empty() || std::ssize(batches.back()) == batch_rows_) batches.emplace_back();
    batches.back().push_back(row);
  }
  return batches;
}

std::vector<run::Rollout> Evaluation::run(std::span<const int64_t> rows) {
  std::vector<data::Prompt> prompts;
  for (const int64_t row : rows) prompts.push_back(prompts_[static_cast<size_t>(row)]);
  std::vector<run::Rollout> rollouts = worker_.run(prompts, validation_plan(options_));
  for (run::Rollout& rollout : rollouts)
    rollout.prompt = static_cast<uint32_t>(rows[rollout.prompt]);
  return rollouts;
}

}  // namespace tlt::rl
