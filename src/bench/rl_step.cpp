// SPDX-License-Identifier: Apache-2.0
#include "bench/rl_step.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "bench/bench.h"
#include "cluster/launch.h"

namespace tlt::bench {
namespace {

constexpr uint64_t kStepSeed = 1;

}  // namespace

void StepShape::check(const model::ModelConfig& config) const {
  for (const auto& [name, value] : {std::pair{"--prompts", prompts},
                                    {"--samples", samples},
                                    {"--prompt-tokens", prompt_tokens},
                                    {"--new-tokens", new_tokens}})
    TLT_CHECK_INPUT(value >= 1 && value <= 1 << 20, name, " is ", value,
                    "; give a number from 1 to ", 1 << 20);
  TLT_CHECK_INPUT(responses() <= 1 << 14, "--prompts times --samples is ", responses(),
                  "; give at most ", 1 << 14);
  TLT_CHECK_INPUT(prompt_tokens + new_tokens <= config.max_positions,
                  "--prompt-tokens and --new-tokens need ", prompt_tokens + new_tokens,
                  " positions and the model has ", config.max_positions, "; give fewer");
}

RlStep::RlStep(const model::PolicyModel& policy, const StepShape& shape,
               const rollout::EngineOptions& engine, int64_t steps, const Clock& clock)
    : policy_(policy),
      shape_((shape.check(policy.config()), shape)),
      clock_(clock),
      comm_(cluster::make_comm(cluster::Launch{}, {})),
      engine_(policy, engine),
      trainer_(policy, {}, *comm_, {.total_steps = steps}) {}

StepResult RlStep::run(uint32_t index) {
  StepResult result;
  Stopwatch stopwatch(clock_);
  const std::vector<train::TrainSample> samples = roll_out(index);
  engine_.release_memory();  // as rl/rl_loop.cpp
  result.rollout_seconds = stopwatch.restart();
  result.stats = trainer_.update(samples, train::LossKind::kPolicy);
  trainer_.release_memory();
  policy_.device().synchronize();
  result.train_seconds = stopwatch.seconds();
  return result;
}

std::vector<train::TrainSample> RlStep::roll_out(uint32_t index) {
  const auto sampling = fixed_length(shape_.new_tokens, /*temperature=*/1);
  for (uint32_t i = 0; i < shape_.prompts; ++i)
    engine_.submit({.prompt_id = i,
                    .rl_step = index,
                    .tokens = random_prompt(policy_, i, shape_.prompt_tokens),
                    .samples = shape_.samples,
                    .sampling = sampling,
                    .seed = kStepSeed});
  std::vector<train::TrainSample> samples;
  while (engine_.step()) {
    for (rollout::Response& response : engine_.take_finished()) {
      train::TrainSample& sample = samples.emplace_back();
      sample.tokens = random_prompt(policy_, response.prompt_id, shape_.prompt_tokens);
      sample.response_begin = static_cast<int32_t>(sample.tokens.size());
      sample.tokens.insert(sample.tokens.end(), response.tokens.begin(), response.tokens.end());
      RandomStream random(kStepSeed,
                          {.step = index, .prompt = response.prompt_id, .sample = response.sample});
      sample.advantages.assign(response.tokens.size(), static_cast<float>(random.normal()));
      sample.group = response.prompt_id;
      sample.rollout_logprobs = std::move(response.logprobs);
    }
  }
  std::ranges::stable_sort(samples, {}, &train::TrainSample::group);
  return samples;
}

}  // namespace tlt::bench
