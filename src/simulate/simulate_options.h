// SimulateOptions: what `tlt simulate` simulates. The names are verl's where verl has the option.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "simulate/devices.h"

namespace tlt::simulate {

struct SimulateOptions {
  std::string device = "H100", model = "Qwen2.5-7B";
  int64_t tensor_model_parallel_size = 1;
  int64_t workers = 8;
  int64_t total_training_steps = 10;
  int64_t train_batch_size = 64;
  int64_t n = 8;
  int64_t prompt_length = 512;
  int64_t max_response_length = 32768;
  std::string lengths = "lognormal:2000,20000";
  double length_correlation = 0.5;
  int64_t max_num_seqs = 256;
  int64_t max_num_batched_tokens = 8192;
  double gpu_memory_utilization = 0.6;
  int64_t ppo_max_token_len_per_gpu = 32768;
  std::vector<std::string> ways = {"plain",         "tlt-base", "static",
                                   "tlt-published", "tlt",      "tlt-early"};
  double draft_acceptance = 0.8;
  double drift = 0.05;
  double suffix_acceptance = 0.64;
  double suffix_draft_rate = 1;
  std::vector<double> acceptance_by_position = {1, 1, 1, 1};
  std::string zero_std = "skip";
  double reward_seconds = 0;
  int64_t reward_concurrency = 0;
  double logprob_passes = 0;
  double straggler_spread = 0;
  double over_sampling = 1.5;
  int64_t rollout_workers = 0;
  int64_t save_freq = 0;
  double disk_bandwidth = 2e9;
  std::vector<std::string> lost_workers;
  double losses_per_worker_day = 0;
  double regroup_seconds = 0.4;
  double rejoin_seconds = 0;
  double restart_seconds = 60;
  int64_t stride = 8;
  int64_t seed = 0;
  std::string bench_forward, bench_forward_alone;
  std::string bench_suffix;
  CostConstants costs;

  void visit(auto& v) {
    const auto add = [&](auto& value, const char* name, const char* help) {
      v(value, name, Affects::kResults, help);
    };
    add(device, "device", "A built-in device; tlt simulate --list names them.");
    add(model, "model", "The shape of a built-in model; tlt simulate --list names them.");
    add(tensor_model_parallel_size, "tensor_model_parallel_size", "Devices of a worker.");
    add(workers, "workers", "Engines that share the prompts of a step (data parallel size).");
    add(total_training_steps, "total_training_steps", "RL steps.");
    visit_workload(add);
    add(max_num_seqs, "max_num_seqs", "Sequences that a worker decodes at a time.");
    add(max_num_batched_tokens, "max_num_batched_tokens", "Token rows of a forward pass.");
    add(gpu_memory_utilization, "gpu_memory_utilization",
        "Share of the memory for weights and KV cache.");
    add(ppo_max_token_len_per_gpu, "ppo_max_token_len_per_gpu", "Tokens of a pack in the update.");
    add(ways, "ways",
        "Ways to compare (tlt simulate --list), each also with +partial or +one-step-off.");
    visit_acceptance(add);
    add(zero_std, "zero_std",
        "What the update does with groups of equal scores, in the responses of "
        "lengths=rollouts:FOLDER: nothing (skip, as tlt train with one optimizer step), a forward "
        "pass (forward, as tlt train in further ones), or a forward and backward pass (train, as "
        "verl).");
    add(reward_seconds, "reward_seconds", "Seconds to score a response.");
    add(reward_concurrency, "reward_concurrency",
        "Responses scored at a time, those of all workers together; 0: any number.");
    add(logprob_passes, "logprob_passes",
        "Forward passes over all tokens before the update: old logprobs, reference (verl: 2, "
        "tlt: 0 or 1).");
    add(over_sampling, "over_sampling",
        "+partial: groups that a step rolls out, for each one of train_batch_size.");
    add(rollout_workers, "rollout_workers",
        "+one-step-off: workers that roll out, of `workers`; the others train. 0: half of them.");
    visit_faults(add);
    add(stride, "stride",
        "Engine steps per simulated decision at most; 1: every engine step is simulated.");
    add(seed, "seed", "Of lengths and draft tokens.");
    add(bench_forward, "bench_forward",
        "Lines of tlt bench forward: measured forward passes instead of the device's roofline.");
    add(bench_forward_alone, "bench_forward_alone",
        "The same, measured in one process instead of as many as there are workers: where workers "
        "share a memory, passes take less time while others wait.");
    add(bench_suffix, "bench_suffix",
        "A file of tlt bench suffix --out for lengths=rollouts:FOLDER: suffix drafts are looked up "
        "in these tokens, instead of suffix_acceptance and suffix_draft_rate.");
    v.group("costs", costs);
  }
  void visit_workload(const auto& add) {
    add(train_batch_size, "train_batch_size", "Prompts of a step.");
    add(n, "n", "Responses per prompt.");
    add(prompt_length, "prompt_length", "Tokens of a prompt.");
    add(max_response_length, "max_response_length", "Responses are cut off at these tokens.");
    add(lengths, "lengths",
        "Tokens of responses: lognormal:MEDIAN,P99, pareto:MEDIAN,P99, rollouts:PATH (of a run, or "
        "verl's: the folder replays its steps, one file is a distribution) or servegen:PATH (a "
        "trace's …-dataset.json, or a folder of them).");
    add(length_correlation, "length_correlation",
        "Correlation of the normal scores of lengths within a group, 0 to 1.");
  }
  void visit_acceptance(const auto& add) {
    add(draft_acceptance, "draft_acceptance",
        "Acceptance rate of the draft model's first choice before the first step; 0: random "
        "weights.");
    add(drift, "drift", "Share of its training that a draft model loses with each policy update.");
    add(suffix_acceptance, "suffix_acceptance", "Acceptance rate of suffix drafts.");
    add(suffix_draft_rate, "suffix_draft_rate",
        "Share of the sequences that have a suffix draft to verify, where suffix drafts are used.");
    add(acceptance_by_position, "acceptance_by_position",
        "Factors of the acceptance rates after 0, 512, 2K and 8K tokens of the response.");
  }
  void visit_faults(const auto& add) {
    add(straggler_spread, "straggler_spread",
        "Standard deviation of the logarithm of the workers' speeds.");
    add(save_freq, "save_freq", "Steps between checkpoints; 0: none.");
    add(disk_bandwidth, "disk_bandwidth", "Bytes per second that a checkpoint is written with.");
    add(lost_workers, "lost_workers",
        "Workers that are lost, as 3@120,5@600: worker 3 after 120 seconds. Without worker 0 the "
        "run starts again from its last checkpoint.");
    add(losses_per_worker_day, "losses_per_worker_day",
        "Random losses in addition: how often a worker is lost in a day.");
    add(regroup_seconds, "regroup_seconds",
        "Seconds in which the others connect again once they know of a loss.");
    add(rejoin_seconds, "rejoin_seconds",
        "After these seconds a lost worker takes part in the next step again; 0: never.");
    add(restart_seconds, "restart_seconds", "Seconds until a run that has ended runs again.");
  }
  // Throws InputError if a value is invalid or two contradict each other.
  void check() const;
  // What the update takes for a group with equal scores, as a share of its gradients' time.
  double zero_std_share() const;

 private:
  void check_ranges() const;
};

}  // namespace tlt::simulate
