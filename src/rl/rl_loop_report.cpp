// RlLoop, continued: the alarm on diverging scores, and the summary of the run.
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
// Responses decoded both with and without speculation at the end of a run, to check that they are
// identical: a few show a fault, and take seconds.
constexpr int64_t kReplayResponses = 8;
constexpr int64_t kReplayPool = 64;  // prompts to measure the speedup with
// Time to measure the speedup: a share of the run's time. Below the minimum it is not measured.
constexpr double kSpeedupShare = 0.03, kLeastSpeedupSeconds = 0.5, kMostSpeedupSeconds = 8;

}  // namespace

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
                      .has_drafter = rollouts_.trains_drafter(),
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
  // Without its environment a prompt is not the beginning of a turn.
  if (options_.environment.is_on() || !rollouts_.speculates()) return std::nullopt;
  const double budget = std::min(kMostSpeedupSeconds, kSpeedupShare * run_.seconds());
  const data::Dataset& rows = held_out_ ? *held_out_ : prompts_;
  SamplingPlan plan = training_plan(/*gen_batch=*/0);
  std::vector<rollout::Group> pool;
  for (int64_t i = 0; i < std::min(kReplayPool, rows.size()); ++i)
    pool.push_back({.prompt_id = static_cast<uint32_t>(i),
                    .rl_step = kReplayStep,
                    .tokens = rows.prompt(i).tokens,
                    .sampling = plan.sampling,
                    .seed = plan.seed});
  const auto count = std::min(kReplayResponses, std::ssize(pool));
  ReplayEngines engines = rollouts_.replay_engines({pool.begin(), pool.begin() + count});
  Replay result = engines.compare();
  if (budget >= kLeastSpeedupSeconds) result.speedup = engines.measure(pool, budget);
  return result;
}

}  // namespace tlt::rl
