// tlt bench train: seconds of one RL step (rl_step.h).
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "base/check.h"
#include "base/statistics.h"
#include "bench/bench.h"
#include "bench/rl_step.h"
#include "bench/scenarios.h"

namespace tlt::bench {
namespace {

struct TrainFlags {
  BenchModel model;
  StepShape step;
  int64_t repeat = 3;

  void add_to(CLI::App& app) {
    model.add_to(app);
    app.add_option("--prompts", step.prompts, "Prompts of the step.");
    app.add_option("--samples", step.samples, "Responses per prompt.");
    app.add_option("--prompt-tokens", step.prompt_tokens, "Length of the prompts.");
    app.add_option("--new-tokens", step.new_tokens, "Length of the responses.");
    app.add_option("--repeat", repeat, "Steps; the median counts.");
  }

  void check(const model::ModelConfig& config) const {
    step.check(config);
    TLT_CHECK_INPUT(repeat >= 1 && repeat <= 1 << 20, "--repeat is ", repeat,
                    "; give a number from 1 to ", 1 << 20);
  }
};

}  // namespace

int run_train(const cli::Arguments& arguments) {
  TrainFlags flags;
  CLI::App app(
      "Seconds of one RL step: responses of a fixed length, then an update with random "
      "advantages.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  const auto policy = flags.model.load();
  flags.check(policy->config());

  RlStep step(*policy, flags.step, {}, flags.repeat + 1);
  std::vector<double> rollout_seconds, train_seconds, step_seconds;
  train::TrainStats stats;
  for (uint32_t i = 0; i <= flags.repeat; ++i) {
    StepResult result = step.run(i);
    stats = std::move(result.stats);
    if (i == 0) continue;  // warm-up
    rollout_seconds.push_back(result.rollout_seconds);
    train_seconds.push_back(result.train_seconds);
    step_seconds.push_back(result.seconds());
  }

  nlohmann::ordered_json report = begin_report("train", flags.model, *policy);
  report["prompts"] = flags.step.prompts;
  report["samples"] = flags.step.samples;
  report["prompt_tokens"] = flags.step.prompt_tokens;
  report["new_tokens"] = flags.step.new_tokens;
  report["repeat"] = flags.repeat;
  report["step_seconds"] = median(step_seconds);
  report["best_step_seconds"] = percentile(step_seconds, 0);
  report["rollout_seconds"] = median(rollout_seconds);
  report["train_seconds"] = median(train_seconds);
  report["rollout_tokens_per_second"] =
      static_cast<double>(flags.step.responses() * flags.step.new_tokens) / median(rollout_seconds);
  report["train_tokens_per_second"] = static_cast<double>(stats.tokens) / median(train_seconds);
  report["packs"] = stats.packs;
  report["rollout_probs_diff_max"] = stats.probability_difference;
  print_report(std::move(report));
  return 0;
}

}  // namespace tlt::bench
