// SPDX-License-Identifier: Apache-2.0
#include "rl/speculation_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace tlt::rl {
namespace {

using rollout::DraftStats;

constexpr size_t kReportedLevels = 8;

// Indices of a drafter's counts in the vector that is summed over the workers.
enum Count : size_t {
  kSteps,
  kTrees,
  kDrafted,
  kAccepted,
  kSeconds,
  kFailed,
  kMixedDrafted,
  kMixedAccepted,
  kDraftedAt
};
constexpr size_t kCounts = kDraftedAt + 2 * DraftStats::kLevels;

void append_counts(const DraftStats& stats, std::vector<double>& counts) {
  for (const int64_t count :
       {stats.steps, stats.trees, stats.drafted_tokens, stats.accepted_tokens})
    counts.push_back(static_cast<double>(count));
  counts.push_back(stats.draft_seconds);
  counts.push_back(stats.failed ? 1 : 0);
  for (const int64_t count : {stats.mixed_drafted, stats.mixed_accepted})
    counts.push_back(static_cast<double>(count));
  for (const int64_t count : stats.drafted_at) counts.push_back(static_cast<double>(count));
  for (const int64_t count : stats.accepted_at) counts.push_back(static_cast<double>(count));
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

double accept_length(std::span<const double> counts) {
  return 1 + share(counts[kAccepted], counts[kTrees]);
}

void add_drafter(const std::string& name, std::span<const double> counts, Metrics& metrics) {
  metrics.set(name + "steps", counts[kSteps]);
  metrics.set(name + "draft_seconds", counts[kSeconds]);
  metrics.set(name + "failed", counts[kFailed]);
  if (counts[kMixedDrafted] > 0) {
    metrics.set(name + "mixed_drafted_tokens", counts[kMixedDrafted]);
    metrics.set(name + "mixed_accepted_tokens", counts[kMixedAccepted]);
  }
  if (counts[kTrees] == 0) return;
  metrics.set(name + "accept_length", accept_length(counts));
  for (size_t i = 0; i < kReportedLevels; ++i)
    if (const double drafted = counts[kDraftedAt + i]; drafted > 0)
      metrics.set(fmt::format("{}accept_rate_pos_{}", name, i + 1),
                  counts[kDraftedAt + DraftStats::kLevels + i] / drafted);
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
    : speculation_(speculation) {}

void SpeculationReport::add_step(cluster::Comm& comm, Metrics& metrics) {
  const std::vector<std::string> kinds = speculation_.kinds();
  std::vector<double> now = {static_cast<double>(speculation_.stats().decode_steps)};
  for (size_t i = 0; i < kinds.size(); ++i) append_counts(speculation_.stats_of(i), now);
  before_.resize(now.size());
  std::vector<double> step(now.size());
  for (size_t i = 0; i < now.size(); ++i) step[i] = now[i] - before_[i];
  before_ = std::move(now);
  step = comm.all_reduce_sum(std::move(step));

  std::vector<double> sum(kCounts);
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    const auto counts = std::span(step).subspan(1 + kind * kCounts, kCounts);
    add_drafter("speculation/" + kinds[kind] + "/", counts, metrics);
    for (size_t i = 0; i < kCounts; ++i) sum[i] += counts[i];
  }
  metrics.set("speculation/step_share", share(sum[kSteps], step[0]));
  metrics.set("speculation/draft_seconds", sum[kSeconds]);
  if (sum[kTrees] > 0) {
    metrics.set("rollout/spec_accept_length", accept_length(sum));
    metrics.set("rollout/spec_accept_rate", share(sum[kAccepted], sum[kDrafted]));
  }
  if (speculation_.tuner()) add_arms(speculation_.tuner()->report(), metrics);
}

}  // namespace tlt::rl
