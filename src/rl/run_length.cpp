// SPDX-License-Identifier: Apache-2.0
#include "rl/run_length.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "base/sentence.h"

namespace tlt::rl {

int64_t count_steps(const RunOptions& options, const data::Sampler& sampler, int64_t left_out) {
  const auto check = [&](const char* option, int64_t batch) {
    const int64_t rows = sampler.rows();
    TLT_CHECK_INPUT(
        rows >= batch, "data.train_files has ", counted(rows, "row"),
        left_out > 0 ? fmt::format(" (and {} longer than data.max_prompt_length)", left_out) : "",
        ", fewer than ", option, "=", batch, "; set ", option, " to at most ", rows);
  };
  const data::DataOptions& data = options.data;
  const int64_t steps = options.trainer.total_training_steps;
  const bool draws_others = options.algorithm.filter_groups.enable && data.gen_batch_size > 0;
  if (draws_others) check("data.gen_batch_size", data.gen_batch_size);
  if (!draws_others || steps == 0) check("data.train_batch_size", data.train_batch_size);
  return steps > 0
             ? steps
             : options.trainer.total_epochs * sampler.batches_per_epoch(data.train_batch_size);
}

void log_complete(const Workplace& place, int64_t step, int64_t total_steps) {
  if (!place.is_first()) return;
  log_info("complete ({} of {} steps); raise trainer.total_training_steps to train further", step,
           total_steps);
}

int report_stop(const Workplace& place, int64_t step, int64_t total_steps) {
  if (place.is_first())
    log_info("interrupted: stopped at step {} of {}; the same command resumes from there", step,
             total_steps);
  return place.exit_code_of_stop();
}

}  // namespace tlt::rl
