// SPDX-License-Identifier: Apache-2.0
#include "rl/idle_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/statistics.h"
#include "rl/step_report.h"

namespace tlt::rl {
namespace {

// A worker's idle training in one step.
struct Ledger {
  int worker = 0;
  double idle_seconds = 0;       // the engine was empty, or the worker waited for rewards
  double used_seconds = 0;       // training, out of idle_seconds
  double gradient_seconds = 0;   // early gradients, out of idle_seconds
  double reference_seconds = 0;  // reference logprobs for them, out of idle_seconds
  double gap_seconds = 0;        // training after a single worker's rollouts, not in idle_seconds
  int64_t steps = 0, skipped_steps = 0, tokens = 0;
  double longest_slice = 0;
  std::vector<double> preemptions;
  std::vector<std::pair<std::string, double>> losses;  // of the last optimizer step

  static Ledger of(int worker, const drafter_training::IdleStep& step, const PhaseTimes& times) {
    return {.worker = worker,
            .idle_seconds = times.idle_seconds + times.reward_seconds,
            .used_seconds = step.idle.used_seconds,
            .gradient_seconds = times.gradient_seconds,
            .reference_seconds = times.reference_seconds,
            .gap_seconds = step.gap.used_seconds,
            .steps = step.idle.steps + step.gap.steps,
            .skipped_steps = step.idle.skipped_steps + step.gap.skipped_steps,
            .tokens = step.idle.tokens + step.gap.tokens,
            .longest_slice = std::max(step.idle.longest_slice, step.gap.longest_slice),
            .preemptions = times.preemption_seconds,
            .losses = (step.gap.steps > 0 ? step.gap : step.idle).last_step.metrics};
  }

  double lost_seconds() const {
    return std::max(0.0, idle_seconds - used_seconds - gradient_seconds - reference_seconds);
  }

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Ledger, worker, idle_seconds, used_seconds, gradient_seconds,
                                 reference_seconds, gap_seconds, steps, skipped_steps, tokens,
                                 longest_slice, preemptions, losses)
};

void report_times(cluster::Comm& comm, const Ledger& mine, Metrics& metrics) {
  Ledger all;
  for (const std::string& text : comm.all_gather_bytes(nlohmann::json(mine).dump())) {
    const Ledger its = nlohmann::json::parse(text);
    const std::string name = fmt::format("drafter/worker_{}/", its.worker);
    metrics.set(name + "idle_seconds", its.idle_seconds);
    metrics.set(name + "used_seconds", its.used_seconds);
    metrics.set(name + "gradient_seconds", its.gradient_seconds);
    metrics.set(name + "reference_seconds", its.reference_seconds);
    metrics.set(name + "lost_seconds", its.lost_seconds());
    metrics.set(name + "steps", static_cast<double>(its.steps));
    metrics.set(name + "tokens", static_cast<double>(its.tokens));
    all.idle_seconds += its.idle_seconds;
    all.used_seconds += its.used_seconds;
    all.gradient_seconds += its.gradient_seconds;
    all.reference_seconds += its.reference_seconds;
    all.gap_seconds += its.gap_seconds;
    all.steps += its.steps;
    all.skipped_steps += its.skipped_steps;
    all.tokens += its.tokens;
    all.longest_slice = std::max(all.longest_slice, its.longest_slice);
    all.preemptions.insert(all.preemptions.end(), its.preemptions.begin(), its.preemptions.end());
    if (all.losses.empty()) all.losses = its.losses;
  }
  metrics.set("drafter/idle_seconds", all.idle_seconds);
  metrics.set("drafter/used_seconds", all.used_seconds);
  metrics.set("drafter/gradient_seconds", all.gradient_seconds);
  metrics.set("drafter/reference_seconds", all.reference_seconds);
  metrics.set("drafter/lost_seconds", all.lost_seconds());
  metrics.set("drafter/gap_seconds", all.gap_seconds);
  metrics.set("drafter/steps", static_cast<double>(all.steps));
  metrics.set("drafter/skipped_steps", static_cast<double>(all.skipped_steps));
  metrics.set("drafter/tokens", static_cast<double>(all.tokens));
  if (all.steps > 0) metrics.set("drafter/longest_slice_seconds", all.longest_slice);
  if (!all.preemptions.empty()) {
    metrics.set("drafter/preemption_seconds/median", percentile(all.preemptions, 0.5));
    metrics.set("drafter/preemption_seconds/max", percentile(all.preemptions, 1));
  }
  for (const auto& [name, value] : all.losses) metrics.set(name, value);
}

// `moment`: "before", "after" or "frozen".
void report_figures(const drafter_training::HeldOutFigures& figures, const char* moment,
                    Metrics& metrics) {
  if (figures.sums.rows == 0) return;
  const auto set = [&](const char* name, double value) {
    metrics.set(fmt::format("drafter/{}/{}", name, moment), value);
  };
  set("top1_accuracy", figures.sums.top[0] / figures.sums.rows);
  set("top3_accuracy", figures.sums.top[2] / figures.sums.rows);
  set("expected_acceptance", figures.sums.acceptance / figures.sums.rows);
  if (figures.acceptance.drafts > 0) set("acceptance_length", figures.tokens_per_forward());
}

void report_publish(const drafter_training::PublishReport& report, Metrics& metrics) {
  metrics.set("drafter/trained", report.was_trained ? 1 : 0);
  metrics.set("drafter/published", report.was_published ? 1 : 0);
  metrics.set("drafter/refused", report.was_trained && !report.was_published ? 1 : 0);
  metrics.set("drafter/workers_off", static_cast<double>(report.workers_off));
  metrics.set("drafter/version", static_cast<double>(report.version));
  report_figures(report.before, "before", metrics);
  report_figures(report.after, "after", metrics);
}

}  // namespace

void report_idle_step(const drafter_training::IdleStep& step,
                      const drafter_training::DraftBuffer& buffer, const PhaseTimes& times,
                      cluster::Comm& comm, Metrics& metrics) {
  metrics.set("speculation/drafter_version", static_cast<double>(step.used_version));
  report_figures(step.frozen, "frozen", metrics);
  report_times(comm, Ledger::of(comm.worker(comm.rank()), step, times), metrics);
  report_publish(step.publish, metrics);
  metrics.set("drafter/collected_samples", static_cast<double>(buffer.sequences()));
  metrics.set("drafter/buffer_bytes", static_cast<double>(buffer.bytes()));
}

}  // namespace tlt::rl
