// SPDX-License-Identifier: Apache-2.0
#include "rl/speculation_report.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "rl/worker_sums.h"

namespace tlt::rl {
namespace {

using rollout::DraftStats;

constexpr size_t kReportedLevels = 8;

double share(auto part, auto whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

double accept_length(const DraftStats& stats) {
  return 1 + share(stats.accepted_tokens, stats.trees);
}

void add_drafter(const std::string& name, const DraftStats& stats, Metrics& metrics) {
  const auto set = [&](const std::string& metric, auto value) {
    metrics.set(name + metric, static_cast<double>(value));
  };
  set("steps", stats.steps);
  set("draft_seconds", stats.draft_seconds);
  set("failed", stats.failed);
  if (stats.mixed_drafted > 0) {
    set("mixed_drafted_tokens", stats.mixed_drafted);
    set("mixed_accepted_tokens", stats.mixed_accepted);
  }
  if (stats.requests > 0) set("draft_rate", share(stats.trees, stats.requests));
  if (stats.trees == 0) return;
  set("accept_length", accept_length(stats));
  for (size_t i = 0; i < kReportedLevels; ++i)
    if (const int64_t drafted = stats.drafted_at[i]; drafted > 0)
      set(fmt::format("accept_rate_pos_{}", i + 1), share(stats.accepted_at[i], drafted));
}

void add_arms(const speculation::TunerReport& report, Metrics& metrics) {
  metrics.set("speculation/regret", report.regret);
  for (const speculation::ArmReport& arm : report.arms) {
    if (arm.plays == 0) continue;
    const std::string name = arm.arm.is_off() ? std::string("speculation/arm/off/")
                                              : fmt::format("speculation/arm/{}/{}/", arm.arm.kind,
                                                            to_string(arm.arm.strategy));
    metrics.set(name + "steps", static_cast<double>(arm.plays));
    metrics.set(name + "accept_length", arm.acceptance_length);
    metrics.set(name + "tokens_per_second", arm.tokens_per_second);
  }
}

}  // namespace

SpeculationReport::SpeculationReport(const rollout::Speculation& speculation)
    : speculation_(speculation), kinds_(speculation.kinds()) {}

// The counts since the last call.
SpeculationReport::Counts SpeculationReport::take_counts() {
  Counts counts;
  const rollout::SpeculationStats stats = speculation_.stats();
  counts.decode_steps = stats.decode_steps;
  counts.step_seconds = stats.step_seconds;
  counts.plain_seconds = stats.plain_seconds;
  for (size_t i = 0; i < kinds_.size(); ++i) counts.drafters.push_back(speculation_.stats_of(i));
  std::vector<double> now = counters_of(counts), step(now.size());
  before_.resize(now.size());
  std::ranges::transform(now, before_, step.begin(), std::minus<>());
  before_ = std::move(now);
  return with_counters(std::move(counts), step);
}

void SpeculationReport::add_step(cluster::Comm& comm, Metrics& metrics) {
  const Counts mine = take_counts(), step = sum_over_workers(comm, mine);
  DraftStats sum;
  int64_t draft_model_steps = 0;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i] == "eagle" || kinds_[i] == "mixed") draft_model_steps += step.drafters[i].steps;
    add_drafter("speculation/" + kinds_[i] + "/", step.drafters[i], metrics);
    add_counters(sum, step.drafters[i]);
  }
  draft_model_share_ = share(draft_model_steps, step.decode_steps);
  metrics.set("speculation/step_share", share(sum.steps, step.decode_steps));
  metrics.set("speculation/draft_seconds", sum.draft_seconds);
  if (sum.trees > 0) {
    metrics.set("rollout/spec_accept_length", accept_length(sum));
    metrics.set("rollout/spec_accept_rate", share(sum.accepted_tokens, sum.drafted_tokens));
  }
  for (size_t i = 0; i < speculation::kPositions; ++i)
    if (const int64_t trees = sum.trees_at_position[i]; trees > 0)
      metrics.set(
          fmt::format("rollout/accept_length_by_position/{}", speculation::kPositionNames[i]),
          1 + share(sum.accepted_at_position[i], trees));
  if (speculation_.tuner()) add_arms(speculation_.tuner()->report(), metrics);
  if (const auto ridge = speculation_.ridge()) metrics.set("rollout/ridge", *ridge);
  // The rollouts last as long as their slowest worker, with and without speculation.
  at::Tensor slowest = at::tensor({mine.step_seconds, mine.plain_seconds}, at::kDouble);
  comm.all_reduce_max(slowest);
  const double seconds = slowest[0].item<double>(), plain_seconds = slowest[1].item<double>();
  // What the worker did besides decoding takes as long either way.
  if (seconds > 0)
    metrics.set("rollout/plain_seconds", metrics.at("timing_s/gen") - seconds + plain_seconds);
}

}  // namespace tlt::rl
