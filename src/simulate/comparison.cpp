// SPDX-License-Identifier: Apache-2.0
#include "simulate/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/options.h"
#include "base/sentence.h"

namespace tlt::simulate {
namespace {

// Sequences that a worker has at the beginning of a step.
double sequences_per_worker(const SimulateOptions& options) {
  return std::min(static_cast<double>(options.max_num_seqs),
                  std::ceil(static_cast<double>(options.train_batch_size) /
                            static_cast<double>(options.workers)) *
                      static_cast<double>(options.n));
}

double last_speedup(const SimulateOptions& options) {
  return compare_ways(options).back().step_speedup;
}

}  // namespace

std::vector<WayResult> compare_ways(const SimulateOptions& options,
                                    const Simulation::Observer& observer) {
  options.check();
  std::vector<WayResult> results;
  for (const std::string& name : options.ways) find_way(name);  // before the first one takes time
  for (size_t i = 0; i < options.ways.size(); ++i) {
    WayResult& result = results.emplace_back(WayResult{.way = options.ways[i], .sum = {}});
    Simulation simulation(options, find_way(result.way),
                          i + 1 == options.ways.size() ? observer : Simulation::Observer());
    for (; !simulation.is_done(); ++result.steps) result.sum.add(simulation.run_step());
    // Of tokens per second: with partial rollouts a step may have other responses.
    const StepReport &first = results.front().sum, &sum = result.sum;
    result.rollout_speedup = first.rollout / first.tokens * sum.tokens / sum.rollout;
    result.step_speedup = first.seconds / first.updated_tokens * sum.updated_tokens / sum.seconds;
  }
  return results;
}

std::string to_table(const std::vector<WayResult>& results) {
  size_t width = 14;
  for (const WayResult& it : results) width = std::max(width, it.way.size() + 1);
  std::string text =
      fmt::format("{:<{}}{:>10}{:>10}{:>9}{:>10}{:>10}{:>8}{:>12}{:>8}{:>7}{:>11}{:>7}\n", "way",
                  width, "rollout, s", "update, s", "step, s", "rollout x", "step x", "accept",
                  "spec. steps", "idle", "train", "gradients", "lost");
  for (const WayResult& it : results) {
    const StepReport& sum = it.sum;
    const double idle = std::max(sum.idle, 1e-12);
    const double lost = std::max(0.0, sum.idle - sum.draft_training - sum.gradients);
    const auto steps = static_cast<double>(sum.engines.steps);
    text += fmt::format(
        "{:<{}}{:>10.2f}{:>10.2f}{:>9.2f}{:>9.2f}x{:>9.2f}x{:>8.2f}{:>11.0f}%{:>7.0f}%{:>6.0f}%"
        "{:>10.0f}%{:>6.0f}%\n",
        it.way, width, it.mean(sum.rollout), it.mean(sum.update), it.mean(sum.seconds),
        it.rollout_speedup, it.step_speedup, sum.acceptance_length(),
        100 * static_cast<double>(sum.engines.speculative_steps) / steps, 100 * it.idle_share(),
        100 * sum.draft_training / idle, 100 * sum.gradients / idle, 100 * lost / idle);
  }
  return text;
}

nlohmann::ordered_json to_json(const SimulateOptions& options, const WayResult& result) {
  const StepReport& sum = result.sum;
  nlohmann::ordered_json json = {{"way", result.way}, {"steps", result.steps}};
  const auto set_mean = [&](const char* name, double value) { json[name] = result.mean(value); };
  set_mean("step_seconds", sum.seconds);
  set_mean("rollout_seconds", sum.rollout);
  set_mean("reward_seconds", sum.reward);
  set_mean("exchange_seconds", sum.exchange);
  set_mean("logprob_seconds", sum.logprobs);
  set_mean("update_seconds", sum.update);
  set_mean("draft_gap_seconds", sum.draft_gap);
  set_mean("weight_sync_seconds", sum.sync);
  set_mean("checkpoint_seconds", sum.checkpoint);
  set_mean("regroup_seconds", sum.regroup);
  set_mean("restart_seconds", sum.restart);
  json["rollout_speedup"] = result.rollout_speedup;
  json["step_speedup"] = result.step_speedup;
  set_mean("device_seconds_per_step",
           sum.seconds * static_cast<double>(options.workers * options.tensor_model_parallel_size));
  set_mean("decode_worker_seconds", sum.decoding);
  set_mean("idle_worker_seconds", sum.idle);
  json["idle_share"] = result.idle_share();
  set_mean("dead_worker_seconds", sum.dead);
  set_mean("draft_training_worker_seconds", sum.draft_training);
  set_mean("gradient_worker_seconds", sum.gradients);
  set_mean("tokens", sum.tokens);
  set_mean("wasted_tokens", sum.wasted_tokens);
  set_mean("lost_workers", static_cast<double>(sum.lost_workers));
  set_mean("updated_tokens", sum.updated_tokens);
  set_mean("responses", static_cast<double>(sum.responses));
  set_mean("truncated", static_cast<double>(sum.truncated));
  set_mean("migrated", static_cast<double>(sum.migrated));
  set_mean("preemptions", static_cast<double>(sum.engines.preemptions));
  set_mean("draft_trained_tokens", sum.trained_tokens);
  json["draft_acceptance"] = sum.draft_acceptance;
  json["acceptance_length"] = sum.acceptance_length();
  json["speculative_step_share"] =
      static_cast<double>(sum.engines.speculative_steps) / static_cast<double>(sum.engines.steps);
  json["peak_kv_tokens"] = sum.engines.peak_kv_tokens;
  return json;
}

std::string sentence(const SimulateOptions& options, const std::vector<WayResult>& results) {
  const auto& last = results.back();
  const std::string place = fmt::format("at {:.0f} sequences per worker on {} (ridge {:.0f} rows)",
                                        sequences_per_worker(options), options.device,
                                        find_device(options.device).ridge());
  std::string text =
      results.size() == 1
          ? fmt::format("{} a step of {} takes {:.4g} s, rollouts {:.0f} % of it", place, last.way,
                        last.mean(last.sum.seconds), 100 * last.sum.rollout / last.sum.seconds)
          : fmt::format("{} {} makes rollouts {:.2f} times and steps {:.2f} times as fast as {}",
                        place, last.way, last.rollout_speedup, last.step_speedup,
                        results.front().way);
  if (last.sum.lost_workers > 0 || options.save_freq > 0)
    text += fmt::format(
        "; {} lost: connecting again takes {:.2g} %, work done twice after a restart {:.2g} %, "
        "waiting for checkpoints {:.2g} % of the time of {}",
        counted(last.sum.lost_workers, "worker"), 100 * last.sum.regroup / last.sum.seconds,
        100 * last.sum.restart / last.sum.seconds, 100 * last.sum.checkpoint / last.sum.seconds,
        last.way);
  return text;
}

std::vector<Sensitivity> sensitivities(const SimulateOptions& options) {
  SimulateOptions base = options;
  base.ways = {options.ways.front(), options.ways.back()};
  const double before = last_speedup(base);
  std::vector<Sensitivity> all;
  for (const char* name :
       {"train_batch_size", "n", "workers", "prompt_length", "max_response_length",
        "length_correlation", "draft_acceptance", "drift", "suffix_acceptance", "suffix_draft_rate",
        "costs.memory_efficiency", "costs.compute_efficiency", "costs.level_seconds",
        "costs.cycle_seconds", "costs.train_efficiency"}) {
    Sensitivity& it = all.emplace_back(Sensitivity{.option = name});
    for (const auto& [factor, speedup] :
         {std::pair(0.8, &it.smaller), std::pair(1.25, &it.larger)}) {
      SimulateOptions changed = base;
      for (const OptionRef& ref : collect_options(changed)) {
        if (ref.name != name) continue;
        if (int64_t* const* count = std::get_if<int64_t*>(&ref.value))
          **count = std::max<int64_t>(1, std::llround(static_cast<double>(**count) * factor));
        else
          *std::get<double*>(ref.value) *= factor;
      }
      // The upper limits of rates and shares.
      changed.draft_acceptance = std::min(changed.draft_acceptance, 0.98);
      changed.suffix_acceptance = std::min(changed.suffix_acceptance, 0.98);
      changed.suffix_draft_rate = std::min(changed.suffix_draft_rate, 1.0);
      changed.length_correlation = std::min(changed.length_correlation, 1.0);
      changed.drift = std::min(changed.drift, 1.0);
      *speedup = last_speedup(changed);
    }
  }
  std::ranges::stable_sort(all, std::greater(), [&](const Sensitivity& it) {
    return std::max(std::abs(it.smaller - before), std::abs(it.larger - before));
  });
  return all;
}

std::vector<std::vector<std::string>> sweep_points(const std::vector<std::string>& sweeps) {
  std::vector<std::vector<std::string>> points = {{}};
  for (const std::string& sweep : sweeps) {
    const size_t equals = sweep.find('=');
    TLT_CHECK_INPUT(equals != sweep.npos && equals > 0 && equals + 1 < sweep.size(), "--sweep ",
                    sweep, " has no values; give --sweep workers=8,64,512");
    std::vector<std::vector<std::string>> longer;
    for (const auto& point : points)
      for (size_t begin = equals + 1; begin <= sweep.size();) {
        const size_t end = std::min(sweep.find(',', begin), sweep.size());
        longer.push_back(point);
        longer.back().push_back(sweep.substr(0, equals + 1) + sweep.substr(begin, end - begin));
        begin = end + 1;
      }
    points = std::move(longer);
  }
  return points;
}

}  // namespace tlt::simulate
