// SPDX-License-Identifier: Apache-2.0
#include "rl/advantages.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/random.h"

namespace tlt::rl {
namespace {

using ::testing::HasSubstr;

struct Step {
  std::vector<double> scores;
  std::vector<train::TrainSample> samples;
};

Step step_of(const std::vector<double>& scores, const std::vector<size_t>& lengths) {
  Step step{scores, {}};
  for (const size_t length : lengths) {
    train::TrainSample& sample = step.samples.emplace_back();
    sample.response_begin = 1;
    sample.tokens.resize(1 + length);
  }
  return step;
}

run::AlgorithmOptions with(const std::string& estimator) {
  run::AlgorithmOptions options;
  options.adv_estimator = estimator;
  return options;
}

// The advantage of the first token of each sample of one group.
std::vector<double> advantages(const run::AlgorithmOptions& options,
                               const std::vector<double>& scores) {
  Step step = step_of(scores, std::vector<size_t>(scores.size(), 3));
  add_advantages(options, scores, std::ssize(scores), step.samples);
  std::vector<double> first;
  for (const train::TrainSample& sample : step.samples) {
    EXPECT_EQ(sample.advantages.size(), 3u);
    first.push_back(sample.advantages[0]);
  }
  return first;
}

TEST(AdvantagesTest, GrpoDividesByTheStandardDeviation) {
  const std::vector<double> scores = {1, 0, 0, 1, 0.5};
  const std::vector<double> got = advantages({}, scores);
  const double mean = 0.5, deviation = std::sqrt((0.25 * 4) / 4);
  for (size_t i = 0; i < scores.size(); ++i)
    EXPECT_NEAR(got[i], (scores[i] - mean) / (deviation + 1e-6), 1e-6);
}

TEST(AdvantagesTest, WithoutNormOnlySubtractsTheMean) {
  run::AlgorithmOptions options;
  options.norm_adv_by_std_in_grpo = false;
  EXPECT_EQ(advantages(options, {3, 1}), (std::vector<double>{1, -1}));
}

TEST(AdvantagesTest, EqualScoresHaveZeroAdvantage) {
  const std::vector<double> tenths(8, 0.1);  // whose sum is not 0.8
  for (const char* estimator : {"grpo", "rloo", "opo", "gpg", "max_rl", "grpo_passk"})
    for (const auto& scores : {std::vector<double>{1, 1, 1}, tenths})
      for (const double a : advantages(with(estimator), scores)) EXPECT_EQ(a, 0) << estimator;
}

TEST(AdvantagesTest, GroupOfOneKeepsItsScore) {
  for (const char* estimator : {"grpo", "rloo", "opo", "gpg"})
    EXPECT_EQ(advantages(with(estimator), {0.75}), std::vector<double>{0.75}) << estimator;
}

TEST(AdvantagesTest, RlooBaselineIsTheMeanOfTheOthers) {
  const std::vector<double> scores = {1, 0, 0.25, 0.5};
  const std::vector<double> got = advantages(with("rloo"), scores);
  for (size_t i = 0; i < scores.size(); ++i) {
    double others = 0;
    for (size_t j = 0; j < scores.size(); ++j) others += j == i ? 0 : scores[j] / 3;
    EXPECT_NEAR(got[i], scores[i] - others, 1e-6);
  }
}

TEST(AdvantagesTest, OpoBaselineIsWeightedByLength) {
  Step step = step_of({1, 0}, {1, 3});
  add_advantages(with("opo"), step.scores, 2, step.samples);
  EXPECT_FLOAT_EQ(step.samples[0].advantages[0], 0.75F);
  EXPECT_FLOAT_EQ(step.samples[1].advantages[2], -0.25F);
}

TEST(AdvantagesTest, GpgScalesByTheShareOfNonzeroRewards) {
  Step step = step_of({1, 0, 0, 0}, {2, 2, 2, 2});
  add_advantages(with("gpg"), step.scores, 2, step.samples);
  EXPECT_FLOAT_EQ(step.samples[0].advantages[1], 4 * 0.5F);
  EXPECT_FLOAT_EQ(step.samples[1].advantages[1], 4 * -0.5F);
  EXPECT_EQ(step.samples[2].advantages[0], 0);
}

// Against a direct implementation with all tokens in one list.
TEST(AdvantagesTest, ReinforcePlusPlusWhitensOverTheStepsTokens) {
  RandomStream random(3, {});
  Step step = step_of({1, 0, 0.5, 2}, {4, 1, 7, 2});
  run::AlgorithmOptions options = with("reinforce_plus_plus");
  options.use_kl_in_reward = true;
  options.kl_ctrl.kl_coef = 0.1;
  for (train::TrainSample& sample : step.samples)
    for (int64_t t = 0; t < sample.response_size(); ++t) {
      sample.rollout_logprobs.push_back(static_cast<float>(-random.uniform()));
      sample.reference_logprobs.push_back(static_cast<float>(-random.uniform()));
    }
  const std::vector<double> rewards = add_advantages(options, step.scores, 2, step.samples);
  std::vector<double> returns;
  for (size_t i = 0; i < 4; ++i) {
    const train::TrainSample& s = step.samples[i];
    const auto length = static_cast<size_t>(s.response_size());
    double paid = 0;
    for (size_t t = 0; t < length; ++t) {
      double value = 0;
      for (size_t later = t; later < length; ++later) {
        const double kl = double{s.rollout_logprobs[later]} - s.reference_logprobs[later];
        const double reward = (later + 1 == length ? step.scores[i] : 0) - 0.1 * kl;
        value += reward;
        if (t == 0) paid += reward;
      }
      returns.push_back(value);
    }
    EXPECT_NEAR(rewards[i], paid, 1e-9);
  }
  double mean = 0, variance = 0;
  for (const double value : returns) mean += value / double(returns.size());
  for (const double value : returns)
    variance += (value - mean) * (value - mean) / double(returns.size() - 1);
  size_t at = 0;
  for (const train::TrainSample& sample : step.samples)
    for (const float advantage : sample.advantages)
      EXPECT_NEAR(advantage, (returns[at++] - mean) / std::sqrt(variance), 1e-5);
  EXPECT_EQ(at, returns.size());
}

// Reference implementation: the advantage of each sample as in verl's core_algos.py; for
// reinforce_plus_plus_baseline before whitening.
std::vector<double> reference_advantages(const run::AlgorithmOptions& options, const Step& step,
                                         size_t n) {
  const std::string& estimator = options.adv_estimator;
  double paid = 0;
  for (const double score : step.scores) paid += score != 0 ? 1 : 0;
  std::vector<double> found;
  for (size_t i = 0; i < step.scores.size(); ++i) {
    const size_t first = i / n * n;
    double sum = 0, tokens = 0, weighted = 0, squares = 0;
    for (size_t k = first; k < first + n; ++k) {
      const auto length = static_cast<double>(step.samples[k].response_size());
      sum += step.scores[k];
      tokens += length;
      weighted += length * step.scores[k];
    }
    const auto count = static_cast<double>(n);
    const double mean = n == 1 ? 0 : sum / count, from_mean = step.scores[i] - mean;
    for (size_t k = first; k < first + n; ++k)
      squares += (step.scores[k] - mean) * (step.scores[k] - mean);
    const double deviation = n == 1 ? 1 : std::sqrt(squares / (count - 1));
    double advantage = from_mean;
    if (estimator == "grpo" && options.norm_adv_by_std_in_grpo) advantage /= deviation + 1e-6;
    if (estimator == "rloo" && n > 1) advantage *= count / (count - 1);
    if (estimator == "max_rl" && n > 1) advantage = mean > 0 ? from_mean / mean : 0;
    if (estimator == "opo" && n > 1) advantage = step.scores[i] - weighted / tokens;
    if (estimator == "gpg")
      advantage *= static_cast<double>(step.scores.size()) / std::max(paid, 1.0);
    found.push_back(advantage);
  }
  return found;
}

// Whitens over all tokens, with divisor n - 1.
std::vector<double> whitened(const std::vector<double>& values, const Step& step) {
  double tokens = 0, mean = 0, variance = 0;
  for (const train::TrainSample& s : step.samples) tokens += static_cast<double>(s.response_size());
  for (size_t i = 0; i < values.size(); ++i)
    mean += values[i] * static_cast<double>(step.samples[i].response_size()) / tokens;
  for (size_t i = 0; i < values.size(); ++i)
    variance += (values[i] - mean) * (values[i] - mean) *
                static_cast<double>(step.samples[i].response_size()) / (tokens - 1);
  std::vector<double> found;
  for (const double value : values) found.push_back((value - mean) / std::sqrt(variance + 1e-8));
  return found;
}

// Every choice of k of the group, one by one.
std::vector<double> enumerated_pass_at_k(const std::vector<double>& rewards, int k, bool by_std) {
  std::vector<double> best, sum(rewards.size()), count(rewards.size());
  double mean = 0, variance = 0;
  for (uint32_t chosen = 0; chosen < 1U << rewards.size(); ++chosen) {
    if (std::popcount(chosen) != k) continue;
    double most = -INFINITY;
    for (size_t i = 0; i < rewards.size(); ++i)
      if (chosen >> i & 1) most = std::max(most, rewards[i]);
    for (size_t i = 0; i < rewards.size(); ++i)
      if (chosen >> i & 1) sum[i] += most, count[i] += 1;
    best.push_back(most);
  }
  for (const double b : best) mean += b / static_cast<double>(best.size());
  for (const double b : best)
    variance += (b - mean) * (b - mean) / static_cast<double>(best.size());
  std::vector<double> advantages;
  for (size_t i = 0; i < rewards.size(); ++i)
    advantages.push_back((sum[i] / count[i] - mean) / (by_std ? std::sqrt(variance) + 1e-6 : 1));
  return advantages;
}

TEST(AdvantagesTest, PassAtKIsTheMeanOverAllChoices) {
  RandomStream random(12, {});
  for (int round = 0; round < 300; ++round) {
    run::AlgorithmOptions options = with("pass_at_k");
    const size_t n = 2 + random.below(6);
    options.pass_k = 1 + static_cast<int64_t>(random.below(n - 1));
    options.norm_adv_by_std_in_grpo = round % 2 == 0;
    std::vector<double> scores;
    for (size_t i = 0; i < n; ++i)
      scores.push_back(round % 3 == 0 ? random.normal() : static_cast<double>(random.below(2)));
    const std::vector<double> want = enumerated_pass_at_k(scores, static_cast<int>(options.pass_k),
                                                          options.norm_adv_by_std_in_grpo),
                              got = advantages(options, scores);
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << round << " " << i;
  }
}

// The closed form of Pass@k Training for scores 0 and 1.
TEST(AdvantagesTest, PassAtKOfRightAndWrongIsThePapers) {
  run::AlgorithmOptions options = with("pass_at_k");
  options.pass_k = 2;
  const std::vector<double> got = advantages(options, {1, 0, 0, 0, 0});
  const double mean = 1 - 6.0 / 10, deviation = std::sqrt(mean * (1 - mean));  // C(4,2) / C(5,2)
  EXPECT_NEAR(got[0], (1 - mean) / deviation, 1e-5);
  EXPECT_NEAR(got[1], (1 - mean - 3.0 / 4) / deviation, 1e-5);  // C(3,1) / C(4,1)
}

TEST(AdvantagesTest, PassAtKIsZeroWhereEveryChoicePasses) {
  run::AlgorithmOptions options = with("pass_at_k");
  options.pass_k = 3;
  EXPECT_EQ(advantages(options, {0, 1, 0, 1, 1}), std::vector<double>(5));
}

TEST(AdvantagesTest, MaxRlDividesByTheMean) {
  EXPECT_EQ(advantages(with("max_rl"), {1, 0, 0, 0}), (std::vector<double>{3, -1, -1, -1}));
  EXPECT_EQ(advantages(with("max_rl"), {0, 0, 0}), std::vector<double>(3));
  EXPECT_EQ(advantages(with("max_rl"), {-1, 0.5, 0}), std::vector<double>(3));
}

TEST(AdvantagesTest, PassKOfGrpoIsOfTheBestResponseOnly) {
  const std::vector<double> scores = {0.25, 1, 0.5, 0};
  double squares = 0;
  for (const double score : scores) squares += (score - 0.4375) * (score - 0.4375);
  const std::vector<double> got = advantages(with("grpo_passk"), scores);
  EXPECT_NEAR(got[1], 0.5 / std::sqrt(squares / 3), 1e-5);
  EXPECT_EQ(got[0] + got[2] + got[3], 0);
  run::AlgorithmOptions options = with("grpo_passk");
  options.norm_adv_by_std_in_grpo = false;
  EXPECT_EQ(advantages(options, scores), (std::vector<double>{0, 0.5, 0, 0}));
  EXPECT_EQ(advantages(options, {1, 0, 1}), std::vector<double>(3));
}

TEST(AdvantagesTest, RandomStepsMatchTheReference) {
  RandomStream random(11, {});
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + random.below(5), groups = 2 + random.below(4);
    std::vector<double> scores;
    std::vector<size_t> lengths;
    for (size_t i = 0; i < n * groups; ++i) {
      scores.push_back(random.below(2) == 0 ? static_cast<double>(random.below(2))
                                            : 3 * random.normal());
      lengths.push_back(1 + random.below(9));
    }
    for (const char* estimator : {"grpo", "grpo without norm", "rloo", "max_rl", "opo", "gpg",
                                  "reinforce_plus_plus_baseline"}) {
      run::AlgorithmOptions options =
          with(std::string(estimator).substr(0, 4) == "grpo" ? "grpo" : estimator);
      options.norm_adv_by_std_in_grpo = std::string(estimator) == "grpo";
      Step step = step_of(scores, lengths);
      std::vector<double> want = reference_advantages(options, step, n);
      if (options.adv_estimator == "reinforce_plus_plus_baseline") want = whitened(want, step);
      add_advantages(options, step.scores, static_cast<int64_t>(n), step.samples);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(step.samples[i].advantages.size(), lengths[i]);
        for (const float advantage : step.samples[i].advantages)
          ASSERT_NEAR(advantage, want[i], 1e-5 * (1 + std::abs(want[i])))
              << estimator << ", round " << round;
      }
    }
  }
}

TEST(AdvantagesTest, BaselineVariantSubtractsGroupMeansFirst) {
  Step step = step_of({1, 0, 0, 0}, {1, 1, 2, 2});
  add_advantages(with("reinforce_plus_plus_baseline"), step.scores, 2, step.samples);
  // Minus the groups' means: 0.5, -0.5, 0, 0, 0, 0, with mean 0 and deviation sqrt(0.5 / 5).
  EXPECT_NEAR(step.samples[0].advantages[0], 0.5 / std::sqrt(0.1), 1e-5);
  EXPECT_NEAR(step.samples[1].advantages[0], -0.5 / std::sqrt(0.1), 1e-5);
  EXPECT_EQ(step.samples[3].advantages[1], 0);
}

TEST(AdvantagesTest, KlPenaltyIsSubtractedFromTheReward) {
  Step step = step_of({1, 1}, {2, 1});
  run::AlgorithmOptions options;
  options.norm_adv_by_std_in_grpo = false;
  options.use_kl_in_reward = true;
  options.kl_ctrl.kl_coef = 0.5;
  step.samples[0].rollout_logprobs = {-1, -1};
  step.samples[0].reference_logprobs = {-2, -1.5};
  step.samples[1].rollout_logprobs = step.samples[1].reference_logprobs = {-1};
  EXPECT_EQ(add_advantages(options, step.scores, 2, step.samples), (std::vector<double>{0.25, 1}));
  EXPECT_FLOAT_EQ(step.samples[0].advantages[1], -0.375F);
}

TEST(AdvantagesTest, ResponseWithoutTokensKeepsItsScore) {
  Step step = step_of({0, 1}, {0, 2});
  run::AlgorithmOptions options;
  options.norm_adv_by_std_in_grpo = false;
  add_advantages(options, step.scores, 2, step.samples);
  EXPECT_TRUE(step.samples[0].advantages.empty());
  EXPECT_FLOAT_EQ(step.samples[1].advantages[0], 0.5F);
}

TEST(AdvantagesTest, UnknownValuesAreRefusedByName) {
  const auto refusal = [](const run::AlgorithmOptions& options) -> std::string {
    try {
      options.check(/*samples=*/8);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(with("gea")),
              HasSubstr("opo, gpg, max_rl, grpo_passk, pass_at_k, reinforce_plus_plus, "
                        "reinforce_plus_plus_baseline, remax or gae"));
  run::AlgorithmOptions options;
  options.kl_penalty = "full";
  EXPECT_THAT(refusal(options), HasSubstr("algorithm.kl_penalty is 'full'"));
  options = {};
  options.pass_k = 2;
  EXPECT_THAT(refusal(options), HasSubstr("algorithm.pass_k has no effect"));
  EXPECT_THAT(refusal(with("pass_at_k")), HasSubstr("algorithm.pass_k is 0 and rollout.n 8"));
  options = with("pass_at_k");
  options.pass_k = 8;
  EXPECT_THAT(refusal(options), HasSubstr("from 1 to rollout.n - 1"));
  EXPECT_THROW(with("max_rl").check(/*samples=*/1), InputError);
}

TEST(TeacherTest, DifferenceOfLogprobsIsAddedToTheAdvantages) {
  std::vector<train::TrainSample> samples(2);
  samples[0].rollout_logprobs = {-1, -2};
  samples[0].reference_logprobs = {-0.5, -4};
  samples[0].advantages = {1, 1};
  samples[1].rollout_logprobs = {-3};
  samples[1].reference_logprobs = {-3};
  samples[1].advantages = {-1};
  const train::DistillationOptions k1{.teacher = "t"};
  EXPECT_DOUBLE_EQ(mean_teacher_kl(k1, samples), (-0.5 + 2 + 0) / 3);
  std::vector<train::TrainSample> mixed = samples, pure = samples, exact = samples, none = samples;
  add_teacher({.teacher = "t", .coef = 2}, mixed);
  EXPECT_EQ(mixed[0].advantages, (std::vector<float>{2, -3}));
  EXPECT_EQ(mixed[1].advantages, (std::vector<float>{-1}));
  add_teacher({.teacher = "t", .coef = 2, .use_task_rewards = false}, pure);
  EXPECT_EQ(pure[0].advantages, (std::vector<float>{1, -4}));
  EXPECT_EQ(pure[1].advantages, (std::vector<float>{0}));
  add_teacher({.teacher = "t", .loss_mode = "reverse_kl", .use_task_rewards = false}, exact);
  EXPECT_EQ(exact[0].advantages, (std::vector<float>{0, 0}));
  add_teacher({}, none);
  EXPECT_EQ(none[0].advantages, samples[0].advantages);
  samples[0].weights = {0, 1};
  EXPECT_DOUBLE_EQ(mean_teacher_kl(k1, samples), (2.0 + 0) / 2) << "a token that was not sampled";
}

// By autograd: the policy gradient with the advantage is the gradient of the estimate as a loss.
TEST(TeacherTest, AdvantageOfK3IsItsDerivativeOn300RandomTokens) {
  at::manual_seed(3);
  const train::DistillationOptions options{.teacher = "t", .loss_mode = "k3", .coef = 0.5};
  const at::Tensor teacher = -at::rand({300}, at::kDouble) * 3;
  at::Tensor student = teacher + at::randn({300}, at::kDouble);
  student.requires_grad_(true);
  const at::Tensor d = teacher - student, estimates = d.exp() - d - 1;
  estimates.sum().backward();
  train::TrainSample sample;
  sample.advantages.assign(300, 0.25F);
  for (int64_t t = 0; t < 300; ++t) {
    sample.rollout_logprobs.push_back(student[t].item<float>());
    sample.reference_logprobs.push_back(teacher[t].item<float>());
  }
  add_teacher(options, {&sample, 1});
  int64_t limited = 0;
  double mean = 0;
  for (int64_t t = 0; t < 300; ++t) {
    const double estimate = estimates[t].item<double>();
    mean += std::min(estimate, 10.0) / 300;
    if (estimate > 10 && ++limited > 0) continue;
    EXPECT_NEAR(sample.advantages[static_cast<size_t>(t)],
                0.25 - 0.5 * student.grad()[t].item<double>(), 1e-5);
  }
  EXPECT_LT(limited, 30);
  EXPECT_NEAR(mean_teacher_kl(options, {&sample, 1}), mean, 1e-5);
}

// Over the student's own samples, so exactly: those of each token by its probability.
TEST(TeacherTest, ExpectedGradientsAreThoseOfTheDivergences) {
  at::manual_seed(4);
  for (const char* mode : {"k1", "k3"}) {
    at::Tensor logits = at::randn({7}, at::kDouble);
    logits.requires_grad_(true);
    const at::Tensor log_q = at::randn({7}, at::kDouble).log_softmax(0),
                     log_p = logits.log_softmax(0);
    train::TrainSample sample;
    sample.advantages.assign(7, 0.0F);
    for (int64_t v = 0; v < 7; ++v) {
      sample.rollout_logprobs.push_back(log_p[v].item<float>());
      sample.reference_logprobs.push_back(log_q[v].item<float>());
    }
    add_teacher({.teacher = "t", .loss_mode = mode}, {&sample, 1});
    const at::Tensor advantages = at::tensor(sample.advantages).to(at::kDouble);
    (-log_p.exp().detach() * advantages * log_p).sum().backward();
    const at::Tensor got = logits.grad().clone();
    logits.mutable_grad().zero_();
    const at::Tensor again = logits.log_softmax(0);
    const at::Tensor divergence = std::string(mode) == "k1" ? (again.exp() * (again - log_q)).sum()
                                                            : (log_q.exp() * (log_q - again)).sum();
    divergence.backward();
    EXPECT_LT((got - logits.grad()).abs().max().item<double>(), 1e-5) << mode;
  }
}

// Tokens that an environment gave: weight 0.
TEST(AdvantagesTest, ObservedTokensDoNotCount) {
  Step step = step_of({1, 0}, {4, 2});
  step.samples[0].weights = {0, 1, 0, 1};
  Step short_step = step_of({1, 0}, {2, 2});
  for (const char* estimator : {"opo", "reinforce_plus_plus_baseline"}) {
    add_advantages(with(estimator), step.scores, 2, step.samples);
    add_advantages(with(estimator), step.scores, 2, short_step.samples);
    EXPECT_EQ(step.samples[0].advantages[1], short_step.samples[0].advantages[0]) << estimator;
    EXPECT_EQ(step.samples[1].advantages, short_step.samples[1].advantages) << estimator;
  }
  run::AlgorithmOptions options;
  options.use_kl_in_reward = true;
  for (train::TrainSample& sample : step.samples) {
    sample.rollout_logprobs.assign(static_cast<size_t>(sample.response_size()), -1);
    sample.reference_logprobs = sample.rollout_logprobs;
  }
  step.samples[0].reference_logprobs[0] = -9;
  EXPECT_EQ(add_advantages(options, step.scores, 2, step.samples)[0], 1);
}

// ---- verl's formulas over arrays padded to the longest response

// A step in that form: [response][token], 0 after the end of a response.
struct PaddedStep {
  size_t tokens = 0;  // columns
  std::vector<std::vector<double>> rewards, mask, values;
};

PaddedStep padded(const run::AlgorithmOptions& options, const Step& step) {
  PaddedStep all;
  for (const train::TrainSample& sample : step.samples)
    all.tokens = std::max(all.tokens, static_cast<size_t>(sample.response_size()));
  for (size_t i = 0; i < step.samples.size(); ++i) {
    const train::TrainSample& sample = step.samples[i];
    const auto length = static_cast<size_t>(sample.response_size());
    for (auto* rows : {&all.rewards, &all.mask, &all.values}) rows->emplace_back(all.tokens);
    for (size_t t = 0; t < length; ++t) {
      all.mask[i][t] = sample.weight(static_cast<int64_t>(t));
      if (!sample.values.empty()) all.values[i][t] = sample.values[t];
      if (options.use_kl_in_reward)
        all.rewards[i][t] -= options.kl_ctrl.kl_coef * all.mask[i][t] *
                             (double{sample.rollout_logprobs[t]} - sample.reference_logprobs[t]);
    }
    all.rewards[i][length - 1] += step.scores[i];
  }
  return all;
}

// compute_gae_advantage_return, then masked_whiten; returns (advantages, returns).
std::pair<std::vector<std::vector<double>>, std::vector<std::vector<double>>> plain_gae(
    const run::AlgorithmOptions& options, const PaddedStep& step) {
  std::vector<std::vector<double>> advantages = step.rewards, returns = step.rewards;
  double count = 0, mean = 0, variance = 0;
  for (size_t i = 0; i < step.rewards.size(); ++i) {
    double next_value = 0, last = 0;
    for (size_t t = step.tokens; t-- > 0;) {
      const double m = step.mask[i][t], value = step.values[i][t];
      const double delta = step.rewards[i][t] + options.gamma * next_value - value;
      const double now = delta + options.gamma * options.lam * last;
      next_value = value * m + (1 - m) * next_value;
      last = now * m + (1 - m) * last;
      advantages[i][t] = last;
      returns[i][t] = last + value;
      count += m;
      mean += m * last;
    }
  }
  mean /= count;
  for (size_t i = 0; i < step.rewards.size(); ++i)
    for (size_t t = 0; t < step.tokens; ++t)
      variance += step.mask[i][t] * std::pow(advantages[i][t] - mean, 2) / (count - 1);
  for (auto& row : advantages)
    for (double& value : row) value = (value - mean) / std::sqrt(variance + 1e-8);
  return {advantages, returns};
}

// compute_remax_outcome_advantage: the rewards from each token on, minus the baseline.
std::vector<std::vector<double>> plain_remax(const PaddedStep& step,
                                             const std::vector<double>& baselines, size_t n) {
  std::vector<std::vector<double>> advantages = step.rewards;
  for (size_t i = 0; i < step.rewards.size(); ++i)
    for (size_t t = 0; t < step.tokens; ++t) {
      double sum = 0;
      for (size_t later = t; later < step.tokens; ++later)
        sum += step.rewards[i][later] * step.mask[i][later];
      advantages[i][t] = sum - baselines[i / n] * step.mask[i][t];
    }
  return advantages;
}

// Responses of 1 to 9 tokens, some with tokens that were not sampled; the last one always was.
Step random_step(RandomStream& random, size_t responses, bool has_observed) {
  Step step;
  for (size_t i = 0; i < responses; ++i) {
    step.scores.push_back(random.below(2) == 0 ? static_cast<double>(random.below(2))
                                               : 3 * random.normal());
    train::TrainSample& sample = step.samples.emplace_back();
    sample.response_begin = 1;
    sample.tokens.resize(2 + random.below(9));
    for (int64_t left = sample.response_size(); left > 0; --left) {
      sample.rollout_logprobs.push_back(static_cast<float>(-random.uniform()));
      sample.reference_logprobs.push_back(static_cast<float>(-random.uniform()));
      sample.values.push_back(static_cast<float>(random.normal()));
      if (has_observed) sample.weights.push_back(left > 1 && random.below(3) == 0 ? 0.0F : 1.0F);
    }
  }
  return step;
}

TEST(AdvantagesTest, RandomStepsOfGaeMatchTheReference) {
  RandomStream random(21, {});
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + random.below(3), groups = 2 + random.below(4);
    Step step = random_step(random, n * groups, round % 2 == 0);
    run::AlgorithmOptions options = with("gae");
    options.gamma = round % 3 == 0 ? 1 : random.uniform();
    options.lam = round % 5 == 0 ? 1 : random.uniform();
    options.use_kl_in_reward = round % 4 == 0;
    options.kl_ctrl.kl_coef = 0.3;
    const auto [advantages, returns] = plain_gae(options, padded(options, step));
    add_advantages(options, step.scores, static_cast<int64_t>(n), step.samples);
    for (size_t i = 0; i < step.samples.size(); ++i) {
      const train::TrainSample& sample = step.samples[i];
      ASSERT_EQ(std::ssize(sample.returns), sample.response_size());
      for (size_t t = 0; t < sample.returns.size(); ++t) {
        if (sample.weight(static_cast<int64_t>(t)) == 0) continue;
        ASSERT_NEAR(sample.advantages[t], advantages[i][t], 1e-5) << round << " " << i << " " << t;
        ASSERT_NEAR(sample.returns[t], returns[i][t], 1e-5) << round << " " << i << " " << t;
      }
    }
  }
}

TEST(AdvantagesTest, RandomStepsOfRemaxMatchTheReference) {
  RandomStream random(22, {});
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + random.below(3), groups = 1 + random.below(4);
    Step step = random_step(random, n * groups, round % 2 == 0);
    std::vector<double> baselines;
    for (size_t i = 0; i < groups; ++i) baselines.push_back(2 * random.normal());
    run::AlgorithmOptions options = with("remax");
    options.use_kl_in_reward = round % 4 == 0;
    options.kl_ctrl.kl_coef = 0.3;
    const auto advantages = plain_remax(padded(options, step), baselines, n);
    add_advantages(options, step.scores, static_cast<int64_t>(n), step.samples, baselines);
    for (size_t i = 0; i < step.samples.size(); ++i) {
      const train::TrainSample& sample = step.samples[i];
      for (size_t t = 0; t < sample.advantages.size(); ++t)
        if (sample.weight(static_cast<int64_t>(t)) > 0) {
          ASSERT_NEAR(sample.advantages[t], advantages[i][t], 1e-5)
              << round << " " << i << " " << t;
        }
    }
  }
}

TEST(AdvantagesTest, ReturnsAreDiscountedWithGamma) {
  Step step = step_of({1, 1}, {3, 3});
  run::AlgorithmOptions options = with("reinforce_plus_plus");
  options.gamma = 0.5;
  add_advantages(options, step.scores, 2, step.samples);
  // 1/4, 1/2, 1 of both responses: mean 7/12, variance 0.1166.
  EXPECT_NEAR(step.samples[0].advantages[2], (1 - 7.0 / 12) / std::sqrt(0.116667), 1e-4);
  EXPECT_NEAR(step.samples[1].advantages[0], (0.25 - 7.0 / 12) / std::sqrt(0.116667), 1e-4);
}

TEST(AdvantagesTest, BaselinesAndValuesMustBeThere) {
  Step step = step_of({1, 1}, {3, 3});
  const std::vector<double> one = {1}, two = {1, 1};
  EXPECT_THROW(add_advantages(with("remax"), step.scores, 2, step.samples), Error);
  EXPECT_THROW(add_advantages(with("remax"), step.scores, 2, step.samples, two), Error);
  EXPECT_THROW(add_advantages(with("grpo"), step.scores, 2, step.samples, one), Error);
  EXPECT_THROW(add_advantages(with("gae"), step.scores, 2, step.samples), Error);
}

}  // namespace
}  // namespace tlt::rl
