// SPDX-License-Identifier: Apache-2.0
#include "run/report/step_line.h"

#include <fmt/format.h>

#include "base/progress.h"

namespace tlt::run {
namespace {

// Name of a main metric, and its sources: the first that exists is copied.
struct MainMetric {
  const char* name;
  std::vector<const char*> from;
};

const std::vector<MainMetric>& main_metrics() {
  static const std::vector<MainMetric> all = {
      {"main/score", {"critic/score/mean"}},
      {"main/validation_score", {"val-aux/reward/mean"}},
      {"main/loss", {"train/loss"}},
      {"main/validation_loss", {"val/loss"}},
      {"main/response_length", {"response_length/mean"}},
      {"main/truncated", {"response_length/clip_ratio"}},
      {"main/kl", {"actor/kl_loss", "actor/ppo_kl"}},
      {"main/entropy", {"actor/entropy"}},
      {"main/tokens_per_second", {"rollout/tokens_per_second", "train/tokens_per_second"}},
      {"main/acceptance_length", {"rollout/spec_accept_length"}},
      {"main/idle_share", {"rollout/idle_share"}},
      {"main/step_seconds", {"timing_s/step"}}};
  return all;
}

// 950 -> "950", 12345 -> "12.3k"
std::string short_number(double value) {
  if (value < 9999.5) return fmt::format("{:.0f}", value);
  if (value < 999'950) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.1f}M", value / 1e6);
}

std::string step_prefix(const StepPlace& position) {
  const std::string total = std::to_string(position.total);
  return fmt::format("step {:>{}}/{}", position.step, total.size(), total);
}

// KL divergence from the reference policy, or from the policy that sampled if an update has several
// mini-batches; with one mini-batch it is 0 and is not shown.
bool has_kl(const Metrics& metrics) {
  return metrics.find("actor/kl_loss") || metrics.find("actor/ppo_kl").value_or(0) != 0;
}

std::string train_line(const StepPlace& position, const Metrics& metrics) {
  std::string line = step_prefix(position);
  const auto add = [&](const char* name, const char* format, double factor = 1) {
    if (const auto value = metrics.find(name))
      line += fmt::format(fmt::runtime(format), *value * factor);
  };
  add("main/score", "  score {:.3f}");
  add("main/loss", "  loss {:.4f}");
  add("rewards/accuracies", "  accuracy {:.2f}");
  if (has_kl(metrics)) add("main/kl", "  KL {:.4f}");
  add("main/entropy", "  entropy {:.2f}");
  add("main/truncated", "  trunc {:>3.0f}%", 100);
  if (const auto rate = metrics.find("main/tokens_per_second"))
    line += fmt::format("  {:>5} tok/s", short_number(*rate));
  if (const auto accepted = metrics.find("main/acceptance_length"))
    line += fmt::format("  accept {:.2f}", *accepted);
  else if (metrics.find("speculation/step_share"))
    line += "  accept    -";  // no step of this rollout speculated
  add("main/step_seconds", "  {:>4.1f} s");
  add("timing_s/gen", " (gen {:.1f}");
  add("timing_s/update_actor", " upd {:.1f})");
  if (position.eta_seconds) line += "  ETA " + format_duration(*position.eta_seconds);
  return line;
}

std::string validation_line(const StepPlace& position, const Metrics& metrics) {
  std::string line = step_prefix(position) + "  validation";
  if (const auto score = metrics.find("main/validation_score"))
    line += fmt::format(" {:.3f}", *score);
  if (const auto loss = metrics.find("main/validation_loss"))
    line += fmt::format(" loss {:.4f}", *loss);
  if (const auto accuracy = metrics.find("val/rewards/accuracies"))
    line += fmt::format("  accuracy {:.3f}", *accuracy);
  if (const auto perplexity = metrics.find("val/perplexity"))
    line += fmt::format("  perplexity {:.3f}", *perplexity);
  if (const auto accepted = metrics.find("val-drafter/mean_acceptance_length"))
    line += fmt::format("  accept {:.2f}", *accepted);
  if (const auto error = metrics.find("val-aux/reward/standard_error"))
    line += fmt::format(" ± {:.3f}", *error);
  if (const auto cut = metrics.find("val-aux/response_length/clip_ratio"))
    line += fmt::format("  trunc {:>3.0f}%", 100 * *cut);
  if (const auto seconds = metrics.find("timing_s/testing"))
    line += fmt::format("  {:.1f} s", *seconds);
  return line;
}

}  // namespace

Metrics with_main(const Metrics& metrics) {
  Metrics all;
  for (const MainMetric& metric : main_metrics())
    for (const char* name : metric.from)
      if (const auto value = metrics.find(name)) {
        all.set(metric.name, *value);
        break;
      }
  for (const auto& [name, value] : metrics)
    if (name.starts_with("main/")) all.set(name, value);
  all.merge(metrics);
  return all;
}

std::vector<std::string> step_lines(const StepPlace& position, const Metrics& metrics) {
  std::vector<std::string> lines;
  const auto has = [&](const char* name) { return metrics.find(name).has_value(); };
  if (has("main/score") || has("main/loss")) lines.push_back(train_line(position, metrics));
  if (has("main/validation_score") || has("main/validation_loss"))
    lines.push_back(validation_line(position, metrics));
  return lines;
}

}  // namespace tlt::run
