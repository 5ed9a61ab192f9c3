// SPDX-License-Identifier: Apache-2.0
#include "train/stepwise_trainer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/golden_batch.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_comm.h"
#include "train/trainer.h"

namespace tlt::train {
namespace {

// A sum over tokens, as Trainer computes it.
LossOptions sum_loss(const char* mode) {
  LossOptions loss;
  loss.policy_loss = {.loss_mode = mode};
  loss.loss_agg_mode = "seq-mean-token-sum-norm";
  loss.loss_scale_factor = 1;
  return loss;
}

OptimOptions optim() { return {.lr = 1e-3, .weight_decay = 0.1}; }

TEST(StepwiseTrainerTest, StepsEqualThoseOfTheTrainer) {
  const auto comm = solo();
  const auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
  const std::vector<at::Tensor> before = tests::weights_of(*golden_model("qwen2_tied"));
  for (const bool has_adapter : {false, true})
    for (const char* mode : {"vanilla", "cispo", "gpg"}) {
      const auto ours = golden_model("qwen2_tied"), theirs = golden_model("qwen2_tied");
      std::unique_ptr<LoraAdapter> our_adapter, their_adapter;
      if (has_adapter) {
        our_adapter = std::make_unique<LoraAdapter>(*ours, LoraConfig{.rank = 3}, 1);
        their_adapter = std::make_unique<LoraAdapter>(*theirs, LoraConfig{.rank = 3}, 1);
      }
      TrainerOptions options;
      options.max_tokens = 40;
      options.optim = optim();
      options.loss = sum_loss(mode);
      Trainer trainer(*theirs, options, *comm, {.adapter = their_adapter.get()});
      StepwiseTrainer stepwise(*ours, our_adapter.get(), {.max_tokens = 40});
      for (int step = 0; step < 2; ++step) {
        const TrainStats stats = trainer.update(samples, LossKind::kPolicy);
        const auto pass = stepwise.forward_backward(samples, options.loss);
        EXPECT_EQ(pass.loss, stats.metrics.front().second) << mode;
        EXPECT_TRUE(stepwise.step(options.optim).fault.empty());
        EXPECT_TRUE(tests::all_equal(tests::weights_of(*ours), tests::weights_of(*theirs)))
            << mode << " " << has_adapter << " step " << step;
      }
      EXPECT_FALSE(tests::all_equal(tests::weights_of(*ours), before)) << "nothing was learned";
    }
}

// The logprobs of prompts come from rows that several samples share.
TEST(StepwiseTrainerTest, LogprobsAreThoseOfWholeSamples) {
  const auto model = golden_model("qwen2_tied");
  auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 40; ++i) prompt.push_back(i % 7 + 1);
  for (int32_t i = 0; i < 3; ++i) {
    TrainSample sample;
    sample.tokens = prompt;
    sample.response_begin = 37;
    sample.tokens[32] = 8 + i;  // the first token after the two pages that they share
    sample.tokens[38] = 10 + i;
    sample.rollout_logprobs = {-1, -1, -1};
    sample.advantages = {1, 1, static_cast<float>(i)};
    sample.group = 1000;
    samples.push_back(sample);
  }
  auto whole = samples;
  for (TrainSample& sample : whole) sample.response_begin = 1;
  const auto comm = solo();
  const auto expected = score_samples(*model, whole, {}, *comm);
  StepwiseTrainer trainer(*model, nullptr, {.max_tokens = 100});
  EXPECT_EQ(trainer.forward(samples, sum_loss("gpg")).logprobs, expected);
  EXPECT_EQ(trainer.forward_backward(samples, sum_loss("gpg")).logprobs, expected);
}

// A sample with other targets than its next tokens is as many samples as it has targets, each of
// which ends with one.
TEST(StepwiseTrainerTest, TargetsMayBeOtherTokens) {
  TrainSample whole;
  whole.tokens = {1, 2, 3, 4, 5, 6, 7};
  whole.response_begin = 3;
  whole.advantages = {0.5, -1, 2, 0.25};
  whole.rollout_logprobs.assign(4, -1);
  const std::vector<std::vector<int32_t>> targets = {{9, 8, 7, 4, 5, 1}};
  std::vector<TrainSample> parts;
  for (int32_t at = whole.response_begin; at < 7; ++at) {
    TrainSample& part = parts.emplace_back();
    part.tokens.assign(whole.tokens.begin(), whole.tokens.begin() + at);
    part.tokens.push_back(targets[0][static_cast<size_t>(at) - 1]);
    part.response_begin = at;
    part.advantages = {whole.advantages[static_cast<size_t>(at - whole.response_begin)]};
    part.rollout_logprobs = {-1};
  }
  const auto ours = golden_model("qwen2_tied"), theirs = golden_model("qwen2_tied");
  const std::vector<at::Tensor> before = tests::weights_of(*golden_model("qwen2_tied"));
  StepwiseTrainer one(*ours, nullptr, {}), many(*theirs, nullptr, {});
  for (const StepwiseTrainer::Loss& loss :
       std::vector<StepwiseTrainer::Loss>{sum_loss("vanilla"), DroOptions{.beta = 0.3}}) {
    const auto pass = one.forward_backward({&whole, 1}, loss, targets);
    const auto expected = many.forward_backward(parts, loss);
    EXPECT_NEAR(pass.loss, expected.loss, 1e-5);
    for (size_t i = 0; i < parts.size(); ++i)
      EXPECT_NEAR(pass.logprobs[0][i + 2], expected.logprobs[i].back(), 1e-5) << i;
  }
  // eps: so large that the step is in proportion to the gradient.
  const OptimOptions smooth = {.lr = 1, .eps = 1e3, .weight_decay = 0, .clip_grad = 0};
  const auto step = one.step(smooth), expected = many.step(smooth);
  EXPECT_NEAR(step.norm, expected.norm, 1e-4 * expected.norm);
  const std::vector<at::Tensor> got = tests::weights_of(*ours), want = tests::weights_of(*theirs);
  EXPECT_FALSE(tests::all_equal(got, before));
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(at::allclose(got[i], want[i], 1e-5, 1e-7)) << "parameter " << i;
}

// Samples that share the rows of their prompt may have other targets there.
TEST(StepwiseTrainerTest, TargetsOfSharedPromptsAreEachSamplesOwn) {
  const auto model = golden_model("qwen2_tied");
  std::vector<TrainSample> samples(3);
  std::vector<std::vector<int32_t>> targets(3);
  for (size_t i = 0; i < 3; ++i) {
    for (int32_t t = 0; t < 40; ++t) samples[i].tokens.push_back(t % 7 + 1);
    samples[i].response_begin = 37;
    samples[i].advantages.assign(3, 1);
    samples[i].rollout_logprobs.assign(3, -1);
    if (i == 1) continue;  // its next tokens
    for (int32_t t = 0; t < 39; ++t)
      targets[i].push_back(t < 20 ? t % 7 + 2 : t % 5 + static_cast<int32_t>(i));
  }
  StepwiseTrainer trainer(*model, nullptr, {});
  const auto together = trainer.forward(samples, sum_loss("gpg"), targets).logprobs;
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(
        together[i],
        trainer.forward({&samples[i], 1}, sum_loss("gpg"), StepwiseTrainer::Targets(&targets[i], 1))
            .logprobs[0])
        << i;
  EXPECT_NE(together[0], together[1]);
}

// Passes add up, and a forward pass alone has no effect.
TEST(StepwiseTrainerTest, GradientsAddUpUntilTheStep) {
  auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
  for (size_t i = 0; i < samples.size(); ++i) samples[i].group = static_cast<int64_t>(i) / 2;
  const auto groups = groups_of(samples);
  ASSERT_GT(groups.size(), 1u);
  const auto together = golden_model("qwen2_tied"), apart = golden_model("qwen2_tied");
  StepwiseTrainer one(*together, nullptr, {}), several(*apart, nullptr, {});
  one.forward_backward(samples, sum_loss("vanilla"));
  for (const auto& group : groups) {
    several.forward_backward(group, sum_loss("vanilla"));
    several.forward(group, sum_loss("vanilla"));
  }
  const auto first = one.step(optim()), second = several.step(optim());
  EXPECT_GT(first.norm, 0);
  EXPECT_EQ(first.norm, second.norm);
  EXPECT_TRUE(tests::all_equal(tests::weights_of(*together), tests::weights_of(*apart)));
  EXPECT_EQ(one.step(optim()).norm, 0) << "the gradients are zero after a step";
}

TEST(StepwiseTrainerTest, InvalidGradientChangesNothing) {
  const auto model = golden_model("qwen2_tied");
  const auto before = tests::weights_of(*model);
  auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
  for (float& advantage : samples.front().advantages) advantage = 1e30f;
  StepwiseTrainer trainer(*model, nullptr, {});
  trainer.forward_backward(samples, sum_loss("gpg"));
  EXPECT_FALSE(trainer.step(optim()).fault.empty());
  EXPECT_TRUE(tests::all_equal(tests::weights_of(*model), before));
  EXPECT_EQ(trainer.step(optim()).norm, 0) << "the invalid gradients are dropped";
}

}  // namespace
}  // namespace tlt::train
