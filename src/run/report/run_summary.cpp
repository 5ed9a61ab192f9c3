// SPDX-License-Identifier: Apache-2.0
#include "run/report/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <span>
#include <utility>

#include "base/sentence.h"
#include "run/report/metric_history.h"

namespace tlt::run {
namespace {

constexpr double kGrows = 0.01;  // rise of the truncated share above which a remedy is named

// A mean and its standard error; an error of NaN is unknown.
struct Estimate {
  double mean = 0, error = 0;
};

std::string show(const Estimate& estimate) {
  return std::isnan(estimate.error) ? fmt::format("{:.3f}", estimate.mean)
                                    : fmt::format("{:.3f} ± {:.3f}", estimate.mean, estimate.error);
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

// 1024 -> "1,024"
std::string grouped(double number) {
  const std::string digits = fmt::format("{:.0f}", number);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string long_duration(double seconds) {
  const int64_t whole = std::llround(seconds), minutes = whole / 60;
  if (minutes == 0) return fmt::format("{} s", whole);
  if (minutes < 60) return fmt::format("{} min {} s", minutes, whole % 60);
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

Estimate mean_of(std::span<const std::pair<double, double>> points) {
  double sum = 0, squares = 0;
  for (const auto& [step, value] : points) sum += value;
  const auto count = static_cast<double>(points.size());
  for (const auto& [step, value] : points) squares += std::pow(value - sum / count, 2);
  return {sum / count, count > 1 ? std::sqrt(squares / (count - 1) / count) : std::nan("")};
}

double mean_over(std::span<const std::pair<double, double>> points) {
  return points.empty() ? 0 : mean_of(points).mean;
}

// Builds lines of label and value; an empty label continues the line above.
class Writer {
 public:
  Writer(const MetricHistory& history, const RunFacts& facts) : history_(history), facts_(facts) {
    steps_ = std::max(std::ssize(points("critic/score/mean")), std::ssize(points("main/loss")));
    // Means of five steps, or of half the steps of a shorter run.
    window_ = static_cast<size_t>(std::clamp<int64_t>(steps_ / 2, 1, int64_t{kMeanSteps}));
  }

  std::vector<std::string> write() {
    heading();
    held_out_score();
    training_score();
    losses();
    lengths();
    failed_rewards();
    draft_model();
    lossless();
    speedup();
    regime();
    idle_workers();
    where_time_went();
    example();
    if (!facts_.report.empty()) add("report", facts_.report);
    if (!facts_.result.empty()) add("result", facts_.result);
    next();
    return std::move(lines_);
  }

 private:
  using Part = std::span<const std::pair<double, double>>;

  void add(const std::string& what, const std::string& text) {
    lines_.push_back(fmt::format("  {:<20}{}", what, text));
  }
  const Points& points(const char* name) const { return history_.points(name); }
  Part first(const Points& points) const {
    return Part(points).first(std::min(points.size(), window_));
  }
  Part last(const Points& points) const {
    return Part(points).last(std::min(points.size(), window_));
  }

  void heading() {
    const double seconds = history_.sum("timing_s/step") + history_.sum("timing_s/testing") +
                           history_.sum("timing_s/save_checkpoint");
    lines_.push_back(fmt::format("Run summary ({}, {})    {}", counted(steps_, "step"),
                                 long_duration(seconds), facts_.folder));
  }

  void held_out_score() {
    const Points scores = run::held_out_score(history_);
    if (scores.size() < 2) return;
    const auto estimate = [&](const std::pair<double, double>& score) {
      for (const auto& [step, error] : points("val-aux/reward/standard_error"))
        if (step == score.first) return Estimate{score.second, error};
      return Estimate{score.second, std::nan("")};
    };
    const auto best = std::ranges::max_element(scores, {}, &Points::value_type::second);
    add("held-out score",
        fmt::format("{} -> {}   (best {:.3f} at step {:g})", show(estimate(scores.front())),
                    show(estimate(scores.back())), best->second, best->first));
  }

  void training_score() {
    const Points& scores = points("critic/score/mean");
    if (scores.empty()) return;
    add("training score",
        fmt::format("{} -> {}   (means of {})", show(mean_of(first(scores))),
                    show(mean_of(last(scores))), counted(static_cast<int64_t>(window_), "step")));
  }

  // For tlt sft, tlt dpo and tlt draft.
  void losses() {
    const Points &training = points("main/loss"), &held_out = points("main/validation_loss"),
                 &accuracy = points("val/rewards/accuracies"),
                 &perplexity = points("val/perplexity");
    if (held_out.size() >= 2) {
      const auto best = std::ranges::min_element(held_out, {}, &Points::value_type::second);
      add("held-out loss",
          fmt::format("{:.4f} -> {:.4f}   (best {:.4f} at step {:g})", held_out.front().second,
                      held_out.back().second, best->second, best->first));
    }
    if (accuracy.size() >= 2)
      add("held-out accuracy",
          fmt::format("{:.3f} -> {:.3f}", accuracy.front().second, accuracy.back().second));
    if (perplexity.size() >= 2)
      add("perplexity",
          fmt::format("{:.3f} -> {:.3f}", perplexity.front().second, perplexity.back().second));
    if (!training.empty())
      add("training loss", fmt::format("{} -> {}   (means of {})", show(mean_of(first(training))),
                                       show(mean_of(last(training))),
                                       counted(static_cast<int64_t>(window_), "step")));
  }

  void lengths() {
    const Points &median = points("response_length/p50"),
                 &cut = points("response_length/clip_ratio"),
                 &limit = points("response_length/limit");
    if (!median.empty())
      add("response length", fmt::format("median {:.0f} -> {:.0f} tokens", mean_over(first(median)),
                                         mean_over(last(median))));
    if (cut.empty()) return;
    const double before = mean_over(first(cut)), after = mean_over(last(cut));
    std::string text = fmt::format("{} -> {} of responses", percent(before), percent(after));
    if (!limit.empty()) text += fmt::format(" at {} tokens", grouped(limit.back().second));
    if (after - before >= kGrows) text += "; raise data.max_response_length";
    add("truncated", text);
  }

  void failed_rewards() {
    double responses = 0;
    for (const auto& [step, count] : points("rollout/responses")) responses += count;
    const double failed = history_.sum("reward/unscored");
    if (failed == 0) return;
    std::string text = grouped(failed);
    if (responses > 0)
      text += fmt::format(" of {} ({}); log.txt has the reason", grouped(responses),
                          percent(failed / responses));
    add("failed rewards", text);
  }

  void draft_model() {
    const Points offline = offline_acceptance(history_);
    const Points& rollouts = points("rollout/spec_accept_length");
    std::string text;
    if (!offline.empty())
      text = fmt::format("acceptance length {:.2f} -> {:.2f} (held-out responses, greedy chains)",
                         points("drafter/acceptance_length/before").front().second,
                         offline.back().second);
    if (!rollouts.empty())
      text += fmt::format("{}{:.2f} in the last rollouts",
                          text.empty() ? "acceptance length " : "; ", mean_over(last(rollouts)));
    if (!text.empty()) add("draft model", text);
    warmed_draft_model();
    const Points& frozen = points("drafter/acceptance_length/frozen");
    if (frozen.size() < 2 || offline.empty()) return;
    add("", fmt::format("frozen after step {:g}: {:.2f} -> {:.2f}; trained further: {:.2f}",
                        frozen.front().first - 1, frozen.front().second, frozen.back().second,
                        offline.back().second));
  }

  // For tlt draft.
  void warmed_draft_model() {
    const Points &lengths = points("val-drafter/mean_acceptance_length"),
                 &accuracy = points("val-drafter/top1_accuracy");
    if (lengths.empty() || accuracy.empty()) return;
    add("draft model",
        fmt::format("acceptance length {:.2f} -> {:.2f}, top-1 accuracy {:.3f} -> {:.3f} (held-out "
                    "responses, greedy chains)",
                    lengths.front().second, lengths.back().second, accuracy.front().second,
                    accuracy.back().second));
  }

  void lossless() {
    if (facts_.replayed == 0) return;
    add("lossless",
        fmt::format("{}/{} responses bit-identical without speculation{}", facts_.equal,
                    facts_.replayed,
                    facts_.equal == facts_.replayed ? "" : "; this is a bug, please report it"));
  }

  void speedup() {
    const char* what = "speedup";
    for (const std::string& line : describe_speedup(facts_.speedup)) {
      add(what, line);
      what = "";
    }
  }

  // What there was for speculation to gain, and what it gained.
  void regime() {
    const Points &sequences = points("rollout/sequences_per_worker"),
                 &ridge = points("rollout/ridge"), &plain = points("rollout/plain_seconds");
    if (sequences.empty() || ridge.empty() || plain.empty()) return;
    const double load = sequences.back().second / mean_over(ridge);
    add("regime", fmt::format("{:.0f} sequences per worker, {:.2g} times the ridge of {:.0f} token "
                              "rows{}",
                              sequences.back().second, load, mean_over(ridge),
                              load > 1 ? "; speculation pays once fewer are left" : ""));
    add("", fmt::format("workers at most half full in {} of rollout time, last tenth of the "
                        "responses {}",
                        percent(mean_over(points("rollout/half_empty_share"))),
                        percent(mean_over(points("rollout/tail_share")))));
    add("", fmt::format("rollouts about {:.2f} times as fast as without speculation",
                        history_.sum("rollout/plain_seconds") / history_.sum("timing_s/gen")));
  }

  void idle_workers() {
    const double all = history_.sum("rollout/worker_seconds");
    double idle = 0;
    const Points &share = points("rollout/idle_share"), &seconds = points("rollout/worker_seconds");
    for (size_t i = 0; i < std::min(share.size(), seconds.size()); ++i)
      idle += share[i].second * seconds[i].second;
    if (idle <= 0) return;
    std::string text = percent(idle / all) + " of rollout time";
    if (!points("drafter/used_seconds").empty())
      text += fmt::format("; {} of it used to train the draft model",
                          percent(std::min(1.0, history_.sum("drafter/used_seconds") / idle)));
    if (const double early = history_.sum("rollout/early_gradient_seconds"); early > 0)
      text += fmt::format("; {} of it used for gradients", percent(std::min(1.0, early / idle)));
    add("idle workers", text);
  }

  void where_time_went() {
    const double validation = history_.sum("timing_s/testing"),
                 save = history_.sum("timing_s/save_checkpoint"),
                 all = history_.sum("timing_s/step") + validation + save;
    if (all <= 0 || points("timing_s/gen").empty()) return;
    const double rollout = history_.sum("timing_s/gen"),
                 update = history_.sum("timing_s/update_actor") + history_.sum("timing_s/ref") +
                          history_.sum("timing_s/update_critic") + history_.sum("timing_s/values");
    std::string text =
        fmt::format("rollout {}, update {}", percent(rollout / all), percent(update / all));
    if (validation > 0) text += ", validation " + percent(validation / all);
    add("time",
        text + ", other " + percent(std::max(0.0, all - rollout - update - validation) / all));
  }

  void example() {
    if (!facts_.example) return;
    add("example", fmt::format("score {:.3g} -> {:.3g}", facts_.example->before.score,
                               facts_.example->after.score));
    for (std::string& line : describe(*facts_.example)) lines_.push_back(std::move(line));
  }

  void next() {
    std::vector<std::string> commands;
    const std::string program = shell_word(facts_.program), policy = shell_word(facts_.policy);
    if (!facts_.policy.empty()) {
      const std::string drafts =
          facts_.drafter.empty() ? ""
                                 : " --speculation eagle --drafter " + shell_word(facts_.drafter);
      commands.push_back(fmt::format("{} generate --model {}{} --prompts {} --output {}", program,
                                     policy, drafts,
                                     shell_word(facts_.folder + "/example_prompt.jsonl"),
                                     shell_word(facts_.folder + "/example_answer.jsonl")));
      if (facts_.has_drafter)
        commands.push_back(fmt::format("{} export drafter {} --target {} --format vllm --out {}",
                                       program, shell_word(facts_.folder), policy,
                                       shell_word(facts_.folder + "/drafter_vllm")));
    }
    if (facts_.has_tensorboard)
      commands.push_back("tensorboard --logdir " + shell_word(facts_.folder + "/tensorboard"));
    if (!commands.empty()) lines_.emplace_back("  next");
    for (const std::string& command : commands) lines_.push_back("    " + command);
  }

  const MetricHistory& history_;
  const RunFacts& facts_;
  int64_t steps_ = 0;
  size_t window_ = 1;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> summarize(const MetricHistory& history, const RunFacts& facts) {
  return Writer(history, facts).write();
}

std::string program_name() {
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  if (program.empty()) return "tlt";
  const std::filesystem::path here = std::filesystem::current_path(none),
                              relative = program.lexically_relative(here);
  return relative.empty() || relative.string().starts_with("..") ? program.string()
                                                                 : relative.string();
}

}  // namespace tlt::run
