// SPDX-License-Identifier: Apache-2.0
#include "train/staged_gradients.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/tape.h"
#include "tests/support/golden_batch.h"
#include "tests/support/gradient_values.h"
#include "tests/support/rollouts.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_model.h"
#include "train/lora.h"
#include "train/value_model.h"

namespace tlt::train {
namespace {

using model::Family;

model::ModelConfig config_of(Family family, bool tied, int64_t layers) {
  model::ModelConfig config = tests::tiny_config(family);
  config.tied = tied;
  config.layers = layers;
  return config;
}

// Tied and untied; one layer and several.
std::vector<model::ModelConfig> configs() {
  return {config_of(Family::kQwen2, true, 3), config_of(Family::kQwen3, false, 3),
          config_of(Family::kLlama, true, 1), config_of(Family::kLlama, false, 1)};
}

std::vector<at::Tensor> values_of(const GradientSum& sum,
                                  const std::vector<model::Parameter>& parameters) {
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t elements = c10::multiply_integers(parameters[i].shape());
    values.push_back(tests::gradient_values(sum.view(), i, 0, elements));
  }
  return values;
}

// A pack of two sequences, and the gradients of its rows' logits and hidden states.
struct StagedPack {
  StagedPack(const model::PolicyModel& policy, uint32_t index)
      : model(policy), tape(policy, /*recompute=*/false) {
    for (const int length : {9, 20})
      tape.add_sequence(
          tests::random_tokens(index, static_cast<uint32_t>(length), length, 100).data(), length);
    const int64_t rows = tape.batch().rows();
    d_logits = tests::random_tensor({rows, 100}, at::kFloat, 60 + index, 0.1);
    d_values = tests::random_tensor({rows, model.config().hidden}, model.type(), 70 + index, 0.1);
    model.forward(tape);
  }

  // Of the LM head, or of a value head in its place; without `is_head` the pass begins below it.
  at::Tensor begin(model::Gradients& gradients, bool is_head) {
    if (!is_head) return d_values;
    at::Tensor d_hidden = at::empty_like(tape.hidden());
    model.logits_backward(tape.hidden(), d_logits, d_hidden, gradients);
    return d_hidden;
  }

  const model::PolicyModel& model;
  model::Tape tape;
  at::Tensor d_logits, d_values;
};

// What is trained of a model, and how gradients of the model reach it.
struct Trained {
  const model::PolicyModel& model;
  const std::vector<model::Parameter>& parameters;
  std::function<model::Gradients(const model::Gradients&)> route;
  bool has_lm_head = true;
};

// The sum of three packs, whose gradients all exist at the same time.
std::vector<at::Tensor> sum_of_whole(const Trained& trained) {
  GradientSum sum(trained.parameters, trained.model.device());
  model::Gradients gradients = model::make_gradients(trained.model.device(), trained.parameters);
  model::Gradients routed = trained.route(gradients);
  for (const uint32_t index : {0U, 1U, 2U}) {
    StagedPack pack(trained.model, index);
    const at::Tensor d_hidden = pack.begin(routed, trained.has_lm_head);
    trained.model.backward(pack.tape, d_hidden, routed);
    sum.add(gradients);
  }
  return values_of(sum, trained.parameters);
}

std::vector<at::Tensor> sum_of_staged(const Trained& trained) {
  GradientSum sum(trained.parameters, trained.model.device());
  StagedGradients staged(trained.model.device(), trained.parameters,
                         trained.model.backward_stages());
  model::Gradients routed = trained.route(staged.gradients());
  for (const uint32_t index : {0U, 1U, 2U}) {
    StagedPack pack(trained.model, index);
    const at::Tensor d_hidden = pack.begin(routed, trained.has_lm_head);
    staged.end_stage(sum);
    for (bool more = true; more; staged.end_stage(sum))
      more = trained.model.backward_layer(pack.tape, d_hidden, routed);
  }
  return values_of(sum, trained.parameters);
}

void expect_same_sums(const Trained& trained, const std::string& what) {
  const std::vector<at::Tensor> want = sum_of_whole(trained), got = sum_of_staged(trained);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(at::equal(got[i], want[i])) << what << " " << trained.parameters[i].name();
    EXPECT_GT(want[i].abs().max().item<float>(), 0)
        << what << " " << trained.parameters[i].name() << ": a lost gradient is not noticed";
  }
}

// A layer that is added twice, or not at all, or an embedding without its part as the LM head.
TEST(StagedGradientsTest, SumsAreThoseOfWholeGradients) {
  for (const model::ModelConfig& config : configs())
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const auto model = tests::make_tiny_model(config, type, Device::cpu(2));
      expect_same_sums({.model = *model,
                        .parameters = model->parameters(),
                        .route = [](const model::Gradients& gradients) { return gradients; }},
                       config.tied ? "tied" : "untied");
    }
}

TEST(StagedGradientsTest, SumsOfAnAdapterAreThoseOfWholeGradients) {
  for (const model::ModelConfig& config : configs()) {
    const auto model = tests::make_tiny_model(config, at::kBFloat16, Device::cpu(1));
    LoraAdapter adapter(*model, {.rank = 3}, /*seed=*/1);
    uint32_t name = 80;
    for (const model::Parameter& parameter : adapter.parameters())
      parameter.write(model->device(),
                      tests::random_tensor(parameter.shape(), at::kFloat, ++name, 0.05));
    adapter.merge();
    expect_same_sums(
        {.model = *model,
         .parameters = adapter.parameters(),
         .route = [&](const model::Gradients& gradients) { return adapter.route(gradients); },
         .has_lm_head = false},
        "adapter");
  }
}

// A pass that ends early, as one whose update is given up.
TEST(StagedGradientsTest, DiscardedPassLeavesNothing) {
  const auto model = tests::make_tiny_model(config_of(Family::kLlama, true, 3), at::kFloat);
  GradientSum sum(*model);
  StagedGradients staged(model->device(), model->parameters(), model->backward_stages());
  for (int stages = -1; stages <= 3; ++stages) {
    StagedPack pack(*model, 0);
    const at::Tensor d_hidden = pack.begin(staged.gradients(), true);
    if (stages >= 0) staged.end_stage(sum);
    for (int i = 0; i < stages; ++i) {
      model->backward_layer(pack.tape, d_hidden, staged.gradients());
      staged.end_stage(sum);
    }
    staged.clear();
    sum.clear();
    for (const at::Tensor& tensor : staged.gradients().tensors)
      EXPECT_EQ(tensor.abs().max().item<float>(), 0) << stages;
  }
}

// By stage: the bytes of the gradients that exist then.
int64_t largest_stage(const std::vector<model::Parameter>& parameters, int64_t stages) {
  std::map<int64_t, int64_t> bytes;
  for (const model::Parameter& parameter : parameters)
    for (int64_t i = parameter.stages.first; i <= std::min(parameter.stages.last, stages - 1); ++i)
      bytes[i] += 4 * c10::multiply_integers(parameter.shape());
  int64_t most = 0;
  for (const auto& [stage, sum] : bytes) most = std::max(most, sum);
  return most;
}

TEST(StagedGradientsTest, MemoryIsThatOfTheLargestStage) {
  for (const model::ModelConfig& config : configs()) {
    const auto model = tests::make_tiny_model(config, at::kFloat);
    const std::vector<model::Parameter>& parameters = model->parameters();
    StagedGradients staged(model->device(), parameters, model->backward_stages());
    const int64_t most = largest_stage(parameters, model->backward_stages());
    EXPECT_GE(staged.bytes(), most);
    EXPECT_LE(staged.bytes(), most + 64 * std::ssize(parameters)) << "beginnings of lines";
    int64_t layer = 0;  // without the layers of the same kind
    for (const model::Parameter& parameter : parameters)
      if (parameter.name().starts_with("model.layers.0."))
        layer += c10::multiply_integers(parameter.shape());
    EXPECT_NEAR(most, 4 * (layer + config.vocabulary * config.hidden + config.hidden),
                4 * config.hidden);
  }
}

// Gradients that exist at the same time have memory of their own.
TEST(StagedGradientsTest, OfTheSameStageAreDisjoint) {
  const auto model = tests::make_tiny_model(config_of(Family::kQwen2, false, 3), at::kFloat);
  const std::vector<model::Parameter>& parameters = model->parameters();
  StagedGradients staged(model->device(), parameters, model->backward_stages());
  bool is_shared = false;
  for (size_t i = 0; i < parameters.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      const model::BackwardStages a = parameters[i].stages, b = parameters[k].stages;
      at::Tensor first = staged.gradients().tensors[i], second = staged.gradients().tensors[k];
      first.fill_(1);
      const bool overlap = second.abs().max().item<float>() > 0;
      first.zero_();
      is_shared |= overlap;
      const bool live_together = a.first <= b.last && b.first <= a.last;
      EXPECT_FALSE(overlap && live_together)
          << parameters[i].name() << " and " << parameters[k].name();
    }
  EXPECT_TRUE(is_shared);
}

// Stages of a critic's parameters: its network's, without an LM head of its own, and its head's.
TEST(StagedGradientsTest, OfACriticHaveTheStagesOfTheNetwork) {
  const ValueModel critic(
      model::load_policy(kGolden + "models/qwen3_untied", Device::cpu(1), at::kFloat));
  const int64_t stages = critic.network().backward_stages();
  StagedGradients staged(critic.network().device(), critic.parameters(), stages);
  EXPECT_LE(staged.bytes(),
            largest_stage(critic.parameters(), stages) + 64 * std::ssize(critic.parameters()));
  EXPECT_EQ(critic.parameters().back().stages.last, 0);
}

// Parameters without stages are complete at the end of the pass.
TEST(StagedGradientsTest, WithoutStagesAllExistUntilTheEnd) {
  std::vector<at::Tensor> tables = {at::zeros({3, 5}), at::zeros({7})};
  std::vector<model::Parameter> parameters;
  for (at::Tensor& table : tables) parameters.push_back({.parts = {{"p", 0, 3}}, .tensor = &table});
  const Device device = Device::cpu(1);
  GradientSum sum(parameters, device);
  StagedGradients staged(device, parameters, /*stages=*/3);
  for (at::Tensor& tensor : staged.gradients().tensors) tensor.fill_(2);
  staged.end_stage(sum);
  staged.end_stage(sum);
  EXPECT_EQ(values_of(sum, parameters)[0].abs().max().item<float>(), 0);
  staged.end_stage(sum);
  for (const at::Tensor& values : values_of(sum, parameters))
    EXPECT_TRUE(at::equal(values, at::full_like(values, 2)));
}

}  // namespace
}  // namespace tlt::train
