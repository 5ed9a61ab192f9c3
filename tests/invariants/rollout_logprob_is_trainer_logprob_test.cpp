// Invariant: the rollout logprob of a token and the trainer's are bit-identical before every
// update, and so are the entropies.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "cluster/comm.h"
#include "cluster/launch.h"
#include "tests/support/rollouts.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"
#include "train/trainer.h"

namespace tlt {
namespace {

using train::TrainSample;

struct Case {
  model::Family family;
  at::ScalarType type;
  double temperature;
  int64_t top_k;
};

class RolloutLogprobIsTrainerLogprob : public ::testing::TestWithParam<Case> {
 protected:
  RolloutLogprobIsTrainerLogprob()
      : model_(tests::make_tiny_model(tests::tiny_config(GetParam().family), GetParam().type,
                                      tests::test_device(2))),
        comm_(cluster::make_comm(cluster::Launch{}, {})) {}

  std::vector<TrainSample> roll_out(uint32_t step) {
    rollout::SamplingOptions sampling;
    sampling.temperature = GetParam().temperature;
    sampling.top_k = GetParam().top_k;
    sampling.max_new_tokens = 40;
    const auto shared = std::make_shared<const rollout::SamplingOptions>(sampling);
    std::vector<rollout::Group> groups;
    for (uint32_t prompt = 0; prompt < 5; ++prompt) {
      rollout::Group group{.prompt_id = prompt,
                           .rl_step = step,
                           .tokens = tests::random_tokens(3, prompt, 3 + 7 * prompt, 100)};
      group.samples = 4;
      group.sampling = shared;
      groups.push_back(group);
    }
    rollout::Engine engine(*model_, {.max_running = 7, .max_batch_tokens = 32, .prefill_chunk = 5});
    std::vector<TrainSample> samples;
    for (const auto& [place, response] : tests::run(engine, groups)) {
      TrainSample& sample = samples.emplace_back();
      sample.tokens = groups[place.first].tokens;
      sample.response_begin = static_cast<int32_t>(sample.tokens.size());
      sample.tokens.insert(sample.tokens.end(), response.tokens.begin(), response.tokens.end());
      sample.rollout_logprobs = response.logprobs;
      sample.rollout_entropies = response.entropies;
      sample.group = place.first;
      sample.advantages.assign(response.tokens.size(), place.second % 2 == 0 ? 1.f : -1.f);
    }
    return samples;
  }

  train::TrainerOptions options(bool recompute) const {
    train::TrainerOptions options;
    options.max_tokens = 150;
    options.recompute = recompute;
    options.optim.lr = 1e-3;
    return options;
  }

  // Metrics of an update of weights that are those of model_ before any update.
  std::vector<std::pair<std::string, double>> updated(std::span<const TrainSample> samples) const {
    const auto model = tests::make_tiny_model(tests::tiny_config(GetParam().family),
                                              GetParam().type, tests::test_device(2));
    train::Trainer trainer(*model, options(false), *comm_,
                           {.total_steps = 4, .temperature = GetParam().temperature});
    return trainer.update(samples, train::LossKind::kPolicy).metrics;
  }

  std::unique_ptr<model::PolicyModel> model_;
  std::unique_ptr<cluster::Comm> comm_;
};

TEST_P(RolloutLogprobIsTrainerLogprob, DifferenceIsExactlyZeroAtEveryStep) {
  for (const bool recompute : {false, true}) {
    train::Trainer trainer(*model_, options(recompute), *comm_,
                           {.total_steps = 4, .temperature = GetParam().temperature});
    for (uint32_t step = 0; step < 4; ++step) {
      const auto samples = roll_out(step);
      const train::TrainStats stats = trainer.update(samples, train::LossKind::kPolicy);
      EXPECT_EQ(stats.logprob_difference, 0) << "step " << step;
      EXPECT_EQ(stats.probability_difference, 0) << "step " << step;
      double norm = 0;
      for (const auto& [name, value] : stats.metrics)
        if (name == "actor/grad_norm") norm = value;
      EXPECT_GT(norm, 1e-3)
          << "nothing was learned: the weights have not changed between the steps";
    }
  }
}

// Without advantages, all that is left of an update is its metrics.
TEST_P(RolloutLogprobIsTrainerLogprob, RolloutsMeasureWhatAForwardPassWould) {
  auto samples = roll_out(0);
  for (TrainSample& sample : samples) std::ranges::fill(sample.advantages, 0.0F);
  auto unknown = samples, changed = samples;
  for (TrainSample& sample : unknown) sample.rollout_entropies.clear();
  EXPECT_EQ(updated(samples), updated(unknown));
  changed[3].rollout_entropies[0] += 1;
  EXPECT_NE(updated(samples), updated(changed)) << "a forward pass has measured them";
}

// Negative controls: one bit of one logprob, updated weights, another temperature.
TEST_P(RolloutLogprobIsTrainerLogprob, DetectsFaults) {
  train::Trainer trainer(*model_, options(false), *comm_,
                         {.total_steps = 4, .temperature = GetParam().temperature});
  auto samples = roll_out(0);
  auto changed = samples;
  changed[3].rollout_logprobs[0] = std::nextafter(changed[3].rollout_logprobs[0], -100.f);
  EXPECT_GT(trainer.update(changed, train::LossKind::kPolicy).logprob_difference, 0);
  EXPECT_GT(trainer.update(samples, train::LossKind::kPolicy).logprob_difference, 0)
      << "the weights have moved";
  train::Trainer hotter(*model_, options(false), *comm_,
                        {.total_steps = 4, .temperature = GetParam().temperature * 1.001});
  EXPECT_GT(hotter.update(roll_out(1), train::LossKind::kPolicy).logprob_difference, 0);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const model::Family family :
       {model::Family::kQwen2, model::Family::kQwen3, model::Family::kLlama})
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
      all.push_back({family, type, 1.0, -1});
  all.push_back({model::Family::kQwen2, at::kBFloat16, 0.7, 20});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, RolloutLogprobIsTrainerLogprob, ::testing::ValuesIn(cases()),
                         [](const auto& info) {
                           return std::string(tests::name_of(info.param.family)) +
                                  (info.param.type == at::kFloat ? "_float32" : "_bfloat16") +
                                  (info.param.top_k > 0 ? "_truncated" : "");
                         });

}  // namespace
}  // namespace tlt
