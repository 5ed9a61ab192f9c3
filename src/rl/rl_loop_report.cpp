// RlLoop, continued: metrics of time, the alarm on diverging scores, and the summary of the run.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "rl/replay.h"
#include "rl/rl_loop.h"
#include "run/report/run_summary.h"

namespace tlt::rl {
namespace {

// The RL step of the replay's uniforms; no training step or validation uses it.
constexpr uint32_t kReplayStep = (uint32_t{1} << 31) + 1;
constexpr int64_t kReplayPool = 64;  // prompts to measure the speedup with
// Time to measure the speedup: a share of the run's time. Below the minimum it is not measured.
constexpr double kSpeedupShare = 0.03, kLeastSpeedupSeconds = 0.5, kMostSpeedupSeconds = 8;

}  // namespace

void RlLoop::report_times(const PhaseTimes& times, double step_seconds, Metrics& metrics) {
  const std::vector<double> all = context_.comm->all_reduce_sum(
      std::vector<double>{times.idle_seconds, times.decode_seconds, times.reward_seconds,
                          static_cast<double>(times.moved_sequences)});
  const auto workers = static_cast<double>(context_.comm->size());
  metrics.set("timing_s/reward", all[2] / workers);
  metrics.set("rollout/idle_seconds", all[0]);
  metrics.set("rollout/moved_sequences", all[3]);
  metrics.set("rollout/worker_seconds", workers * metrics.at("timing_s/gen"));
  // Idle: the engine is empty while others decode, or the worker waits for rewards.
  metrics.set("rollout/idle_share",
              (all[0] + all[2]) / std::max(1e-9, workers * metrics.at("timing_s/gen")));
  metrics.set("rollouter/idle_ratio", all[0] / std::max(1e-9, all[0] + all[1]));
  metrics.set("rollout/tokens_per_second",
              metrics.at("rollout/tokens") / metrics.at("timing_s/gen"));
  run_.report_pace(step_seconds, metrics.at("rollout/tokens"), metrics);
}

void RlLoop::watch_scores(Metrics& metrics) {
  if (!context_.is_first()) return;
  const std::optional<Divergence> found = tell(score_alarm_, metrics);
  if (metrics.find("timing_s/testing")) metrics.set("training/score_alarm", found ? 1 : 0);
  if (found)
    warn_once("score_alarm",
              "the training score rises ({:.3f} -> {:.3f}) while the held-out score falls ({:.3f} "
              "-> {:.3f}), by more than their noise: possible reward hacking or overfitting; "
              "inspect rollouts/; earlier checkpoints are in {}",
              found->training_before, found->training_now, found->held_out_before,
              found->held_out_now, run_.folder().checkpoints());
}

void RlLoop::summarize_run() {
  const std::string folder = run_.folder().path(),
                    policy = fmt::format("{}/step_{:06}/policy", run_.folder().checkpoints(),
                                         run_.step());
  run::RunFacts facts{.policy = std::filesystem::exists(policy) ? policy : "",
                      .has_drafter = idle_trainer_ != nullptr,
                      .example = run::find_before_after(folder + "/validation")};
  if (const std::optional<Replay> replayed = replay_responses()) {
    facts.replayed = replayed->responses;
    facts.equal = replayed->equal;
    facts.speedup = replayed->speedup;
  }
  const data::Dataset& rows = held_out_ ? *held_out_ : prompts_;
  const nlohmann::json prompt = {
      {"prompt", facts.example ? facts.example->prompt : rows.prompt(0).text}};
  run_.summarize(std::move(facts), prompt);
}

std::optional<Replay> RlLoop::replay_responses() {
  if (!speculation_ || options_.trainer.replay_responses == 0) return std::nullopt;
  const double budget = std::min(kMostSpeedupSeconds, kSpeedupShare * run_.seconds());
  const data::Dataset& rows = held_out_ ? *held_out_ : prompts_;
  SamplingPlan plan = training_plan(/*gen_batch=*/0);
  std::vector<rollout::Group> pool;
  for (int64_t i = 0;
       i < std::min(std::max(kReplayPool, options_.trainer.replay_responses), rows.size()); ++i)
    pool.push_back({.prompt_id = static_cast<uint32_t>(i),
                    .rl_step = kReplayStep,
                    .tokens = rows.prompt(i).tokens,
                    .sampling = plan.sampling,
                    .seed = plan.seed});
  const auto count = std::min(options_.trainer.replay_responses, std::ssize(pool));
  ReplayEngines engines(engine_, *speculation_, *context_.model, options_.rollout.engine,
                        &stop_string_, {pool.begin(), pool.begin() + count});
  Replay result = engines.compare();
  if (budget >= kLeastSpeedupSeconds) result.speedup = engines.measure(pool, budget);
  return result;
}

}  // namespace tlt::rl
