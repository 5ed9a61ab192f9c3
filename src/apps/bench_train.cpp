// tlt bench train: seconds of one RL step: the engine writes responses of a fixed length, the
// trainer learns from them with random advantages (GRPO's loss, one optimizer step).
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "apps/bench.h"
#include "apps/commands.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "cluster/comm.h"
#include "cluster/launch.h"
#include "rollout/engine.h"
#include "train/trainer.h"

namespace tlt::apps {
namespace {

constexpr uint64_t kSeed = 1;

struct TrainFlags {
  BenchModel model;
  int64_t prompts = 8, samples = 8, prompt_tokens = 64, new_tokens = 128, repeat = 3;

  void add_to(CLI::App& app) {
    model.add_to(app);
    app.add_option("--prompts", prompts, "Prompts of the step.");
    app.add_option("--samples", samples, "Responses per prompt.");
    app.add_option("--prompt-tokens", prompt_tokens, "Length of the prompts.");
    app.add_option("--new-tokens", new_tokens, "Length of the responses.");
    app.add_option("--repeat", repeat, "Steps; the median counts.");
  }

  void check(const model::ModelConfig& config) const {
    for (const auto& [name, value] : {std::pair{"--prompts", prompts},
                                      {"--samples", samples},
                                      {"--prompt-tokens", prompt_tokens},
                                      {"--new-tokens", new_tokens},
                                      {"--repeat", repeat}})
      TLT_CHECK_INPUT(value >= 1 && value <= 1 << 20, name, " is ", value,
                      "; give a number from 1 to ", 1 << 20);
    TLT_CHECK_INPUT(prompts * samples <= 1 << 14, "--prompts times --samples is ",
                    prompts * samples, "; give at most ", 1 << 14);
    TLT_CHECK_INPUT(prompt_tokens + new_tokens <= config.max_positions,
                    "--prompt-tokens and --new-tokens need ", prompt_tokens + new_tokens,
                    " positions and the model has ", config.max_positions, "; give fewer");
  }
};

std::vector<train::TrainSample> roll_out(const TrainFlags& flags, const model::PolicyModel& policy,
                                         rollout::Engine& engine, uint32_t step) {
  const auto sampling = fixed_length(flags.new_tokens, /*temperature=*/1);
  for (uint32_t i = 0; i < flags.prompts; ++i)
    engine.submit({.prompt_id = i,
                   .rl_step = step,
                   .tokens = random_prompt(policy, i, flags.prompt_tokens),
                   .samples = flags.samples,
                   .sampling = sampling,
                   .seed = kSeed});
  std::vector<train::TrainSample> samples;
  while (engine.step()) {
    for (rollout::Response& response : engine.take_finished()) {
      train::TrainSample& sample = samples.emplace_back();
      sample.tokens = random_prompt(policy, response.prompt_id, flags.prompt_tokens);
      sample.response_begin = static_cast<int32_t>(sample.tokens.size());
      sample.tokens.insert(sample.tokens.end(), response.tokens.begin(), response.tokens.end());
      RandomStream random(kSeed,
                          {.step = step, .prompt = response.prompt_id, .sample = response.sample});
      sample.advantages.assign(response.tokens.size(), static_cast<float>(random.normal()));
      sample.rollout_logprobs = std::move(response.logprobs);
    }
  }
  return samples;
}

}  // namespace

int run_bench_train(const Arguments& arguments) {
  TrainFlags flags;
  CLI::App app(
      "Seconds of one RL step: responses of a fixed length, then an update with random "
      "advantages.");
  flags.add_to(app);
  if (!try_parse(app, arguments)) return 0;
  const auto policy = flags.model.load();
  flags.check(policy->config());

  const auto comm = cluster::make_comm(cluster::Launch{}, {});
  rollout::Engine engine(*policy, {});
  train::Trainer trainer(*policy, {}, *comm, /*total_steps=*/flags.repeat + 1, /*temperature=*/1.0);
  std::vector<double> rollout_seconds, train_seconds, step_seconds;
  train::TrainStats stats;
  for (uint32_t step = 0; step <= flags.repeat; ++step) {  // the first one warms up
    Stopwatch stopwatch;
    const std::vector<train::TrainSample> samples = roll_out(flags, *policy, engine, step);
    const double rollout = stopwatch.restart();
    stats = trainer.update(samples, train::LossKind::kPolicy);
    const double update = stopwatch.seconds();
    if (step == 0) continue;
    rollout_seconds.push_back(rollout);
    train_seconds.push_back(update);
    step_seconds.push_back(rollout + update);
  }

  nlohmann::ordered_json report = begin_report("train", flags.model, *policy);
  report["prompts"] = flags.prompts;
  report["samples"] = flags.samples;
  report["prompt_tokens"] = flags.prompt_tokens;
  report["new_tokens"] = flags.new_tokens;
  report["repeat"] = flags.repeat;
  report["step_seconds"] = median(step_seconds);
  report["best_step_seconds"] = quantile(step_seconds, 0);
  report["rollout_seconds"] = median(rollout_seconds);
  report["train_seconds"] = median(train_seconds);
  report["rollout_tokens_per_second"] =
      static_cast<double>(flags.prompts * flags.samples * flags.new_tokens) /
      median(rollout_seconds);
  report["train_tokens_per_second"] = static_cast<double>(stats.tokens) / median(train_seconds);
  report["packs"] = stats.packs;
  report["rollout_probs_diff_max"] = stats.probability_difference;
  print_report(std::move(report));
  return 0;
}

}  // namespace tlt::apps
