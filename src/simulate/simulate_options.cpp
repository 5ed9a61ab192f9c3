// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulate_options.h"

#include "base/check.h"
#include "speculation/tuning_policy.h"
#include "train/packing.h"

namespace tlt::simulate {
namespace {

struct Range {
  const char* name;
  double value, least, most;
};

}  // namespace

void SimulateOptions::check() const {
  check_ranges();
  TLT_CHECK_INPUT(max_num_seqs <= max_num_batched_tokens, "max_num_seqs=", max_num_seqs,
                  " sequences do not fit into max_num_batched_tokens=", max_num_batched_tokens,
                  " rows; give more rows or fewer sequences");
  TLT_CHECK_INPUT(acceptance_by_position.size() == speculation::kPositions,
                  "acceptance_by_position has ", acceptance_by_position.size(),
                  " factors; give four, for 0, 512, 2K and 8K tokens");
  for (const double factor : acceptance_by_position)
    TLT_CHECK_INPUT(factor >= 0 && factor <= 1, "acceptance_by_position has ", factor,
                    "; give factors from 0 to 1");
  TLT_CHECK_INPUT(bench_forward_alone.empty() || !bench_forward.empty(),
                  "bench_forward_alone needs bench_forward: the passes while all workers compute");
  TLT_CHECK_INPUT(!ways.empty(), "ways is empty; give at least one, as ways=plain,tlt");
  TLT_CHECK_INPUT(zero_std == "skip" || zero_std == "forward" || zero_std == "train",
                  "zero_std is \"", zero_std, "\"; give skip, forward or train");
  costs.check();
}

void SimulateOptions::check_ranges() const {
  constexpr double kMillion = 1e6;
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  for (const Range& range : std::initializer_list<Range>{
           {"tensor_model_parallel_size", number(tensor_model_parallel_size), 1, 1024},
           {"workers", number(workers), 1, 1e5},
           {"total_training_steps", number(total_training_steps), 1, kMillion},
           {"train_batch_size", number(train_batch_size), 1, 10 * kMillion},
           {"n", number(n), 1, 1e4},
           {"prompt_length", number(prompt_length), 1, kMillion},
           {"max_response_length", number(max_response_length), 1, kMillion},
           {"length_correlation", length_correlation, 0, 1},
           {"max_num_seqs", number(max_num_seqs), 1, 1e5},
           {"max_num_batched_tokens", number(max_num_batched_tokens), 1, kMillion},
           {"gpu_memory_utilization", gpu_memory_utilization, 0.01, 1},
           {"ppo_max_token_len_per_gpu", number(ppo_max_token_len_per_gpu), 1, 100 * kMillion},
           {"draft_acceptance", draft_acceptance, 0, 0.99},
           {"drift", drift, 0, 1},
           {"suffix_acceptance", suffix_acceptance, 0, 0.99},
           {"suffix_draft_rate", suffix_draft_rate, 0, 1},
           {"reward_seconds", reward_seconds, 0, 1e5},
           {"reward_concurrency", number(reward_concurrency), 0, kMillion},
           {"logprob_passes", logprob_passes, 0, 10},
           {"straggler_spread", straggler_spread, 0, 2},
           {"over_sampling", over_sampling, 1, 10},
           {"rollout_workers", number(rollout_workers), 0, 1e5},
           {"save_freq", number(save_freq), 0, kMillion},
           {"disk_bandwidth", disk_bandwidth, 1e3, 1e15},
           {"losses_per_worker_day", losses_per_worker_day, 0, 1e5},
           {"regroup_seconds", regroup_seconds, 0, 1e5},
           {"rejoin_seconds", rejoin_seconds, 0, 1e9},
           {"restart_seconds", restart_seconds, 0, 1e9},
           {"stride", number(stride), 1, 1000},
           {"seed", number(seed), 0, 1e15}})
    TLT_CHECK_INPUT(range.value >= range.least && range.value <= range.most, range.name, " is ",
                    range.value, "; give a number from ", range.least, " to ", range.most);
}

double SimulateOptions::zero_std_share() const {
  return zero_std == "skip" ? 0 : zero_std == "forward" ? train::kForwardShare : 1;
}

}  // namespace tlt::simulate
