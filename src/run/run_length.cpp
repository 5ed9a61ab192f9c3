// SPDX-License-Identifier: Apache-2.0
#include "run/run_length.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/sentence.h"

namespace tlt::run {

int64_t count_steps(const RunControlOptions& options, const data::Sampler& sampler, int64_t batch) {
  return options.total_training_steps > 0 ? options.total_training_steps
                                          : options.total_epochs * sampler.batches_per_epoch(batch);
}

int64_t count_data_steps(const RunOptions& options, const data::Sampler& sampler,
                         int64_t left_out) {
  const auto check = [&](const char* option, int64_t batch) {
    const int64_t rows = sampler.rows();
    TLT_CHECK_INPUT(
        rows >= batch, "data.train_files has ", counted(rows, "row"),
        left_out > 0 ? fmt::format(" (and {} longer than data.max_prompt_length)", left_out) : "",
        ", fewer than ", option, "=", batch, "; set ", option, " to at most ", rows);
  };
  const data::DataOptions& data = options.data;
  const bool has_gen_batch = options.algorithm.filter_groups.enable && data.gen_batch_size > 0;
  if (has_gen_batch) check("data.gen_batch_size", data.gen_batch_size);
  if (!has_gen_batch || options.trainer.total_training_steps == 0)
    check("data.train_batch_size", data.train_batch_size);
  return count_steps(options.trainer, sampler, data.train_batch_size);
}

}  // namespace tlt::run
