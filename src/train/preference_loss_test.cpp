// SPDX-License-Identifier: Apache-2.0
#include "train/preference_loss.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <string>

#include "base/random.h"
#include "model/tape.h"
#include "tests/support/dense_model.h"
#include "tests/support/golden_batch.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/thread_comm.h"
#include "train/head_loss.h"
#include "train/trainer.h"

namespace tlt::train {
namespace {

const std::vector<DpoOptions> kLosses = {
    {.beta = 0.1},
    {.beta = 0.5, .label_smoothing = 0.2},
    {.beta = 0.1, .loss_type = "robust"},
    {.beta = 0.3, .loss_type = "robust", .label_smoothing = 0.3},
    {.beta = 0.2, .loss_type = "hinge"},
    {.beta = 0.4, .loss_type = "ipo"}};

std::string dpo_name(const DpoOptions& options) {
  return options.loss_type + " smoothing " + std::to_string(options.label_smoothing);
}

// As in TRL's dpo_loss, with autograd in float64. The log ratios of policy and reference: sums over
// the tokens, and means for ipo.
at::Tensor plain_pair_loss(const DpoOptions& options, const at::Tensor& chosen_ratio,
                           const at::Tensor& rejected_ratio) {
  const at::Tensor logits = chosen_ratio - rejected_ratio, x = logits * options.beta;
  const double e = options.label_smoothing;
  if (options.loss_type == "sigmoid")
    return -at::log_sigmoid(x) * (1 - e) - at::log_sigmoid(-x) * e;
  if (options.loss_type == "robust")
    return (-at::log_sigmoid(x) * (1 - e) + at::log_sigmoid(-x) * e) / (1 - 2 * e);
  if (options.loss_type == "hinge") return at::relu(1 - x);
  return (logits - 1 / (2 * options.beta)).square();
}

// The log ratio of a response, from its tokens' logprobs.
at::Tensor plain_log_ratio(const DpoOptions& options, const TrainSample& sample,
                           const at::Tensor& logprobs) {
  at::Tensor weights = at::ones({sample.response_size()}, at::kDouble);
  for (int64_t i = 0; i < sample.response_size(); ++i) weights[i] = sample.weight(i);
  const at::Tensor ratio = (weights * logprobs).sum() - sample.reference_sum;
  return options.loss_type == "ipo" ? ratio / weights.sum() : ratio;
}

// Pairs of random lengths, some with tokens between the messages of the assistant.
std::vector<TrainSample> random_pairs(RandomStream& random) {
  std::vector<TrainSample> samples(2 * (1 + random.below(4)));
  for (TrainSample& sample : samples) {
    const int64_t tokens = 1 + static_cast<int64_t>(random.below(9));
    sample.tokens.assign(static_cast<size_t>(tokens) + 2, 5);
    sample.response_begin = 2;
    sample.reference_sum = -12 * random.uniform();
    if (random.uniform() < 0.5) continue;
    for (int64_t i = 0; i < tokens; ++i)
      sample.weights.push_back(i > 0 && random.uniform() < 0.3 ? 0.0F : 1.0F);
  }
  return samples;
}

std::vector<std::vector<float>> pair_logprobs(std::span<const TrainSample> samples,
                                              RandomStream& random) {
  std::vector<std::vector<float>> logprobs;
  for (const TrainSample& sample : samples) {
    std::vector<float>& list = logprobs.emplace_back();
    for (int64_t i = 0; i < sample.response_size(); ++i)
      list.push_back(static_cast<float>(-4 * random.uniform()));
  }
  return logprobs;
}

// The derivatives of a sample's tokens, in two pieces.
std::vector<float> derivatives_of(PreferenceLoss& loss, const TrainSample& sample,
                                  const std::vector<float>& logprobs) {
  std::vector<float> derivatives(logprobs.size()), unused(logprobs.size());
  for (const auto& [first, end] : {std::pair<size_t, size_t>{0, logprobs.size() / 2},
                                   {logprobs.size() / 2, logprobs.size()}}) {
    const size_t count = end - first;
    loss.add({.sample = sample,
              .first = static_cast<int64_t>(first),
              .logprobs = std::span(logprobs).subspan(first, count),
              .entropies = std::span(unused).subspan(first, count)},
             {.d_logprob = std::span(derivatives).subspan(first, count),
              .d_entropy = std::span(unused).subspan(first, count)});
  }
  return derivatives;
}

TEST(PreferenceLossTest, LossAndCoefficientsAreThoseOfAPlainImplementation) {
  for (int step = 0; step < 300; ++step) {
    RandomStream random(/*seed=*/26, {.step = static_cast<uint32_t>(step)});
    const DpoOptions& options = kLosses[static_cast<size_t>(step) % kLosses.size()];
    const std::vector<TrainSample> samples = random_pairs(random);
    const auto logprobs = pair_logprobs(samples, random);
    std::vector<at::Tensor> leaves, ratios;
    for (size_t i = 0; i < samples.size(); ++i) {
      leaves.push_back(at::tensor(logprobs[i]).to(at::kDouble).requires_grad_(true));
      ratios.push_back(plain_log_ratio(options, samples[i], leaves[i]));
    }
    at::Tensor want = at::zeros({}, at::kDouble);
    double accurate = 0, chosen_reward = 0, rejected_reward = 0;
    for (size_t i = 0; i < samples.size(); i += 2) {
      want = want + plain_pair_loss(options, ratios[i], ratios[i + 1]);
      const auto sum = [&](size_t k) {  // not the mean, also for ipo
        return plain_log_ratio({}, samples[k], leaves[k]).item<double>();
      };
      accurate += sum(i) > sum(i + 1) ? 1 : 0;
      chosen_reward += options.beta * sum(i);
      rejected_reward += options.beta * sum(i + 1);
    }
    const double pairs = static_cast<double>(samples.size()) / 2;
    want = want / pairs;
    want.backward();

    PreferenceLoss loss(options, samples);
    loss.see_batch(samples, logprobs, 0);
    for (size_t i = 0; i < samples.size(); ++i) {
      const std::vector<float> got = derivatives_of(loss, samples[i], logprobs[i]);
      for (size_t t = 0; t < got.size(); ++t) {
        const double slope = leaves[i].grad()[static_cast<int64_t>(t)].item<double>();
        ASSERT_NEAR(got[t], slope, 1e-6 * (1 + std::abs(slope)))
            << "step " << step << ", " << dpo_name(options) << ", sample " << i << ", token " << t;
      }
    }
    const auto list = loss.metrics(loss.take_sums());
    const std::map<std::string, double> metrics(list.begin(), list.end());
    ASSERT_NEAR(metrics.at("train/loss"), want.item<double>(), 1e-9) << "step " << step;
    ASSERT_EQ(metrics.at("rewards/accuracies"), accurate / pairs) << "step " << step;
    ASSERT_NEAR(metrics.at("rewards/chosen"), chosen_reward / pairs, 1e-9) << "step " << step;
    ASSERT_NEAR(metrics.at("rewards/margins"), (chosen_reward - rejected_reward) / pairs, 1e-9);
  }
}

TEST(PreferenceLossTest, FarLogprobsOverflowNothing) {
  for (const DpoOptions& options : kLosses)
    for (const double far : {-1e5, 1e5}) {
      const PairLoss pair = pair_loss(options, {.sum = far, .tokens = 3}, {.sum = 0, .tokens = 2});
      EXPECT_TRUE(std::isfinite(pair.loss) && std::isfinite(pair.d_chosen)) << dpo_name(options);
    }
}

TEST(PreferenceLossTest, PairBeyondTheHingeIsNotLearnedFrom) {
  const DpoOptions options{.beta = 0.5, .loss_type = "hinge"};
  std::vector<TrainSample> samples(4);
  for (TrainSample& sample : samples) {
    sample.tokens = {1, 2};
    sample.response_begin = 1;
  }
  PreferenceLoss loss(options, samples);
  loss.see_batch(samples, std::vector<std::vector<float>>{{-1}, {-4}, {-4}, {-1}}, 0);
  EXPECT_FALSE(loss.learns_from(samples[0]) || loss.learns_from(samples[1]));
  EXPECT_TRUE(loss.learns_from(samples[2]) && loss.learns_from(samples[3]));
}

// ---- the loss of a whole model

// Pairs of the golden responses, with references that differ from the model.
std::vector<TrainSample> golden_pairs() {
  std::vector<TrainSample> samples = golden_samples(read_golden("qwen2_tied"), "t10");
  samples.resize(samples.size() / 2 * 2);
  RandomStream random(/*seed=*/3, {});
  for (TrainSample& sample : samples) {
    sample.rollout_logprobs.clear();
    sample.advantages.clear();
    sample.reference_sum =
        -5.5 * static_cast<double>(sample.response_size()) + 4 * (random.uniform() - 0.5);
    if (sample.response_size() > 2) {
      sample.weights.assign(static_cast<size_t>(sample.response_size()), 1.0F);
      sample.weights[1] = 0;
    }
  }
  return samples;
}

std::map<std::string, double> preference_metrics(const TrainStats& stats) {
  return {stats.metrics.begin(), stats.metrics.end()};
}

TEST(PreferenceLossTest, GradientsOfTheModelAreAutograds) {
  const std::vector<TrainSample> samples = golden_pairs();
  const auto model = golden_model("qwen2_tied");
  for (const DpoOptions& options : kLosses) {
    const tests::DenseModel dense(*model, /*trainable=*/true);
    std::vector<at::Tensor> ratios;
    for (const TrainSample& sample : samples) {
      const at::Tensor logprobs = dense.logits(sample.tokens)
                                      .narrow(0, sample.response_begin - 1, sample.response_size())
                                      .log_softmax(-1);
      const at::Tensor targets = at::tensor(
          std::vector<int32_t>(sample.tokens.begin() + sample.response_begin, sample.tokens.end()),
          at::kLong);
      ratios.push_back(
          plain_log_ratio(options, sample, logprobs.gather(1, targets.unsqueeze(1)).squeeze(1)));
    }
    at::Tensor want = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < samples.size(); i += 2)
      want = want + plain_pair_loss(options, ratios[i], ratios[i + 1]);
    want = want * (2.0 / static_cast<double>(samples.size()));
    want.backward();

    const std::unique_ptr<cluster::Comm> comm = solo();
    PreferenceLoss loss(options, samples);
    loss.see_batch(samples, score_samples(*model, samples, {.max_tokens = 40}, *comm), 0);
    model::Tape tape(*model, /*recompute=*/false);
    std::vector<PackedSample> pack;
    for (const TrainSample& sample : samples) {
      pack.push_back({&sample, tape.batch().rows()});
      tape.add_sequence(sample.tokens.data(), static_cast<int32_t>(sample.tokens.size()));
    }
    HeadLoss head(*model, /*temperature=*/1, /*logits_bytes=*/1);  // several chunks
    model::Gradients gradients = model->make_gradients();
    model->backward(tape,
                    head.backward(model->forward(tape), pack, loss, gradients,
                                  [](const TrainSample&, int64_t, std::span<const float>) {}),
                    gradients);
    const auto list = loss.metrics(loss.take_sums());
    EXPECT_NEAR(list.front().second, want.item<double>(), 1e-5 * (1 + want.item<double>()))
        << dpo_name(options);
    for (size_t i = 0; i < gradients.tensors.size(); ++i) {
      const std::string& name = model->parameters()[i].name();
      const at::Tensor exact = dense.parameters().at(name).grad();
      const double largest = exact.abs().max().item<double>();
      EXPECT_LT((gradients.tensors[i] - exact).abs().max().item<double>(), 1e-5 * (1 + largest))
          << dpo_name(options) << " " << name;
      EXPECT_GT(largest, 0) << name;
    }
  }
}

TrainerOptions preference_packs(const DpoOptions& dpo) {
  TrainerOptions options;
  options.max_tokens = 40;
  options.optim.lr = 1e-3;
  options.loss.dpo = dpo;
  return options;
}

// The references of the model itself: what `tlt dpo` begins with.
std::vector<TrainSample> pairs_at_start(cluster::Comm& comm, int64_t max_tokens) {
  std::vector<TrainSample> samples = golden_pairs();
  const auto logprobs =
      score_samples(*golden_model("qwen2_tied"), samples, {.max_tokens = max_tokens}, comm);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].reference_sum = response_logprob(samples[i], logprobs[i]).sum;
  return samples;
}

// The reference has the bits of the first step, whatever the packs of either were.
TEST(PreferenceLossTest, FirstStepIsExactlyAtTheReference) {
  const std::unique_ptr<cluster::Comm> comm = solo();
  const std::vector<TrainSample> samples = pairs_at_start(*comm, /*max_tokens=*/1000);
  const auto model = golden_model("qwen2_tied");
  Trainer trainer(*model, preference_packs({}), *comm, {.total_steps = 10});
  auto metrics = preference_metrics(trainer.update(samples, LossKind::kPreference));
  EXPECT_EQ(metrics.at("rewards/chosen"), 0);
  EXPECT_EQ(metrics.at("rewards/margins"), 0);
  EXPECT_NEAR(metrics.at("train/loss"), std::numbers::ln2, 1e-15);
  double first_norm = metrics.at("actor/grad_norm");
  EXPECT_GT(first_norm, 0);
  for (int step = 0; step < 8; ++step)
    metrics = preference_metrics(trainer.update(samples, LossKind::kPreference));
  EXPECT_EQ(metrics.at("rewards/accuracies"), 1);
  EXPECT_GT(metrics.at("rewards/margins"), 0.1);
  EXPECT_LT(metrics.at("train/loss"), std::numbers::ln2);
}

TEST(PreferenceLossTest, PairsMayBeInTwoPacks) {
  const std::unique_ptr<cluster::Comm> comm = solo();
  const std::vector<TrainSample> samples = golden_pairs();
  std::map<std::string, double> want;
  for (const int64_t max_tokens : {1000, 40, 1}) {
    const auto model = golden_model("qwen2_tied");
    TrainerOptions options = preference_packs({.beta = 0.3});
    options.max_tokens = max_tokens;
    Trainer trainer(*model, options, *comm, {.total_steps = 10});
    const TrainStats stats = trainer.update(samples, LossKind::kPreference);
    const auto metrics = preference_metrics(stats);
    if (want.empty()) want = metrics;
    EXPECT_EQ(metrics.at("train/loss"), want.at("train/loss"));
    EXPECT_NEAR(metrics.at("actor/grad_norm"), want.at("actor/grad_norm"),
                1e-5 * want.at("actor/grad_norm"));
    if (max_tokens == 1) {
      EXPECT_EQ(stats.packs, std::ssize(samples));
    }
  }
}

TEST(PreferenceLossTest, WorkersAndMemoryModesChangeNoBit) {
  for (const DpoOptions& dpo : {DpoOptions{}, DpoOptions{.beta = 0.2, .loss_type = "ipo"}}) {
    std::vector<at::Tensor> want;
    std::map<std::string, double> metrics;
    for (const int workers : {1, 2, 3}) {
      std::vector<std::vector<at::Tensor>> got(static_cast<size_t>(workers));
      run_workers(workers, [&](cluster::Comm& comm) {
        const auto model = golden_model("qwen2_tied");
        const std::vector<TrainSample> samples = golden_pairs();
        TrainerOptions options = preference_packs(dpo);
        options.recompute = workers == 2;
        options.use_distributed_optimizer = workers == 3;
        Trainer trainer(*model, options, comm, {.total_steps = 10});
        TrainStats stats;
        for (int step = 0; step < 3; ++step) stats = trainer.update(samples, LossKind::kPreference);
        got[static_cast<size_t>(comm.rank())] = tests::weights_of(*model);
        if (workers == 1) metrics = preference_metrics(stats);
        for (const char* name : {"train/loss", "rewards/margins", "actor/grad_norm"})
          EXPECT_EQ(preference_metrics(stats).at(name), metrics.at(name))
              << name << ", " << workers;
      });
      if (workers == 1) want = got[0];
      for (const auto& weights : got) EXPECT_TRUE(tests::all_equal(weights, want)) << workers;
    }
    EXPECT_FALSE(tests::all_equal(want, tests::weights_of(*golden_model("qwen2_tied"))));
  }
}

TEST(PreferenceLossTest, StepThatIsNotFiniteIsSkipped) {
  const std::unique_ptr<cluster::Comm> comm = solo();
  for (const char* loss_type : {"sigmoid", "robust", "hinge", "ipo"}) {
    std::vector<TrainSample> samples = golden_pairs();
    samples[1].reference_sum = std::numeric_limits<double>::quiet_NaN();
    const auto model = golden_model("qwen2_tied");
    Trainer trainer(*model, preference_packs({.loss_type = loss_type}), *comm, {.total_steps = 10});
    const TrainStats stats = trainer.update(samples, LossKind::kPreference);
    // The slope of hinge does not depend on the distance, so its gradient is finite.
    const bool is_finite = std::string(loss_type) == "hinge";
    EXPECT_EQ(stats.skipped_steps, is_finite ? 0 : 1) << loss_type;
    EXPECT_TRUE(is_finite || tests::all_equal(tests::weights_of(*model),
                                              tests::weights_of(*golden_model("qwen2_tied"))));
  }
}

TEST(PreferenceLossTest, SamplesThatAreNoPairsAreErrors) {
  std::vector<TrainSample> samples(3);
  for (TrainSample& sample : samples) {
    sample.tokens = {1, 2};
    sample.response_begin = 1;
  }
  EXPECT_THROW(PreferenceLoss({}, samples), Error);
  samples.resize(2);
  samples[1].weights = {0};
  PreferenceLoss loss({}, samples);
  EXPECT_THROW(loss.see_batch(samples, std::vector<std::vector<float>>{{-1}, {-1}}, 0), Error);
  EXPECT_THROW(response_logprob(samples[0], std::vector<float>{-1, -1}), Error);
}

TEST(PreferenceLossTest, NonsenseIsRefused) {
  const auto refused = [](const DpoOptions& options, const std::string& says) {
    EXPECT_THAT(thrown_message<InputError>([&] { options.check(); }), testing::HasSubstr(says));
  };
  for (const DpoOptions& options : kLosses) options.check();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused({.beta = 0}, "dpo.beta is 0; use a number above 0");
  refused({.beta = nan}, "dpo.beta");
  refused({.loss_type = "kto"}, "use sigmoid, robust, hinge or ipo");
  refused({.label_smoothing = 0.5}, "from 0 to below 0.5");
  refused({.label_smoothing = nan}, "dpo.label_smoothing");
  refused({.loss_type = "ipo", .label_smoothing = 0.1}, "no meaning with dpo.loss_type=ipo");
}

}  // namespace
}  // namespace tlt::train
