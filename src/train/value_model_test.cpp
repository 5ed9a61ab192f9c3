// SPDX-License-Identifier: Apache-2.0
#include "train/value_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/random.h"
#include "model/tape.h"
#include "tests/support/dense_model.h"
#include "tests/support/golden_batch.h"
#include "tests/support/losing_comm.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/thread_comm.h"
#include "train/checkpoint.h"
#include "train/trainer.h"
#include "train/value_loss.h"

namespace tlt::train {
namespace {

double largest_absolute(const at::Tensor& values) { return values.abs().max().item<double>(); }

float uniform_between(RandomStream& random, double low, double high) {
  return static_cast<float>(low + (high - low) * random.uniform());
}

// Two samples of a prompt each, some with tokens that were not sampled.
std::vector<TrainSample> random_samples(uint64_t seed, int32_t prompts) {
  RandomStream random(seed, {});
  std::vector<TrainSample> samples;
  for (int32_t prompt = 0; prompt < prompts; ++prompt)
    for (int32_t i = 0; i < 2; ++i) {
      TrainSample& sample = samples.emplace_back();
      sample.group = prompt;
      sample.id = std::ssize(samples);
      sample.tokens = {7, prompt, 11, 3 + prompt};
      sample.response_begin = 4;
      for (uint64_t left = 1 + random.below(8); left > 0; --left) {
        sample.tokens.push_back(static_cast<int32_t>(random.below(200)));
        sample.values.push_back(uniform_between(random, -1, 1));
        sample.returns.push_back(uniform_between(random, -2, 2));
        sample.weights.push_back(left > 1 && random.below(4) == 0 ? 0.0F : 1.0F);
      }
      if (random.below(2) == 0) sample.weights.clear();
    }
  return samples;
}

LossOptions loss_with(const std::string& aggregation, double cliprange = 0.5) {
  LossOptions options;
  options.cliprange_value = cliprange;
  options.loss_agg_mode = aggregation;
  options.loss_scale_factor = 9;
  return options;
}

constexpr const char* kAggregations[] = {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean",
                                         "seq-mean-token-sum-norm"};

// verl's compute_value_loss in tensors padded to the longest response: max of both squares, then
// agg_loss.
at::Tensor plain_loss(const LossOptions& options, const std::vector<TrainSample>& samples,
                      const std::vector<at::Tensor>& values) {
  at::Tensor sum = at::zeros({}, at::kDouble), tokens = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < samples.size(); ++i) {
    const TrainSample& s = samples[i];
    const at::Tensor before = at::tensor(s.values, at::kDouble),
                     target = at::tensor(s.returns, at::kDouble),
                     mask = s.weights.empty() ? at::ones_like(before)
                                              : at::tensor(s.weights, at::kDouble);
    const at::Tensor clipped = at::min(at::max(values[i], before - options.cliprange_value),
                                       before + options.cliprange_value);
    const at::Tensor loss =
        mask * at::max((values[i] - target).pow(2), (clipped - target).pow(2)) / 2;
    tokens = tokens + mask.sum();
    sum = sum +
          (options.loss_agg_mode == "seq-mean-token-mean" ? loss.sum() / mask.sum() : loss.sum());
  }
  if (options.loss_agg_mode == "token-mean") return sum / tokens;
  return sum / (options.loss_agg_mode == "seq-mean-token-sum-norm"
                    ? options.loss_scale_factor
                    : static_cast<double>(samples.size()));
}

TEST(ValueLossTest, RandomStepsAreThePlainOnesAndAutograds) {
  int clipped = 0, flat = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const std::vector<TrainSample> samples = random_samples(seed, 1 + static_cast<int>(seed % 3));
    const LossOptions options = loss_with(kAggregations[seed % 4], seed % 2 == 0 ? 0.5 : 0.1);
    RandomStream random(seed, {.prompt = 1});
    std::vector<at::Tensor> values;
    std::vector<std::vector<float>> numbers, slopes;
    for (const TrainSample& sample : samples) {
      std::vector<float>& own = numbers.emplace_back();
      for (const float value : sample.values) own.push_back(value + uniform_between(random, -1, 1));
      values.push_back(at::tensor(own, at::kDouble).requires_grad_(true));
    }
    const at::Tensor want = plain_loss(options, samples, values);
    want.backward();
    ValueLoss loss(options, samples);
    for (size_t i = 0; i < samples.size(); ++i) {
      std::vector<float>& slope = slopes.emplace_back(numbers[i].size(), 99.0F);
      // In two calls, as chunks are.
      const size_t half = numbers[i].size() / 2;
      for (const auto& [first, count] :
           {std::pair<size_t, size_t>{0, half}, {half, numbers[i].size() - half}})
        loss.add({.sample = samples[i],
                  .first = static_cast<int64_t>(first),
                  .logprobs = std::span(numbers[i]).subspan(first, count),
                  .entropies = {}},
                 {.d_logprob = std::span(slope).subspan(first, count), .d_entropy = {}});
      EXPECT_LT(largest_absolute(at::tensor(slope, at::kDouble) - values[i].grad()), 1e-6) << seed;
      for (size_t t = 0; t < slope.size(); ++t)
        flat += slope[t] == 0 && samples[i].weight(static_cast<int64_t>(t)) > 0;
    }
    std::map<std::string, double> metrics;
    for (const auto& [name, value] : loss.metrics(loss.take_sums())) metrics[name] = value;
    EXPECT_NEAR(metrics.at("critic/vf_loss"), want.item<double>(), 1e-6) << seed;
    clipped += metrics.at("critic/vf_clipfrac") > 0;
  }
  EXPECT_GT(clipped, 100);
  EXPECT_GT(flat, 300) << "no clipped token without a gradient";
}

TEST(ValueLossTest, SamplesWithoutReturnsAreRefused) {
  std::vector<TrainSample> samples = random_samples(1, 1);
  samples[1].returns.clear();
  EXPECT_THROW(ValueLoss(loss_with("token-mean"), samples), Error);
}

// ---- whole models

std::unique_ptr<ValueModel> critic_of(const std::string& name, double score_scale) {
  auto critic = std::make_unique<ValueModel>(golden_model(name));
  at::manual_seed(3);
  const model::Parameter& score = critic->parameters().back();
  score.write(critic->network().device(), at::randn(score.shape()) * score_scale);
  return critic;
}

std::vector<std::vector<float>> values_of(const ValueModel& critic,
                                          std::span<const TrainSample> samples, int64_t tokens,
                                          cluster::Comm& comm) {
  return score_samples(critic.network(), samples, {.max_tokens = tokens, .critic = &critic}, comm);
}

// Values, loss and all gradients, of a network with an LM head of its own too.
TEST(ValueModelTest, GradientsOfTheModelAreAutograds) {
  for (const char* name : {"qwen2_tied", "qwen3_untied", "llama_tied"}) {
    const auto critic = critic_of(name, 0.3);
    const std::vector<TrainSample> samples = random_samples(5, 3);
    const LossOptions options = loss_with("seq-mean-token-mean");
    const tests::DenseModel dense(critic->network(), /*trainable=*/true);
    const at::Tensor score = critic->score().to(at::kDouble).requires_grad_(true);
    std::vector<at::Tensor> want_values;
    for (const TrainSample& sample : samples)
      want_values.push_back(at::matmul(
          dense.hidden(sample.tokens).narrow(0, sample.response_begin - 1, sample.response_size()),
          score[0]));
    const at::Tensor want_loss = plain_loss(options, samples, want_values);
    want_loss.backward();

    ValueLoss loss(options, samples);
    model::Tape tape(critic->network(), /*recompute=*/false);
    std::vector<PackedSample> pack;
    for (const TrainSample& sample : samples) {
      pack.push_back({&sample, tape.batch().rows()});
      tape.add_sequence(sample.tokens.data(), static_cast<int32_t>(sample.tokens.size()));
    }
    ValueHead head(*critic);
    model::Gradients gradients =
        model::make_gradients(critic->network().device(), critic->parameters());
    model::Gradients routed = critic->route(gradients);
    size_t next = 0;
    const at::Tensor& d_hidden = head.backward(
        critic->network().forward(tape), pack, loss, routed,
        [&](const TrainSample& sample, int64_t first, std::span<const float> values) {
          EXPECT_EQ(first, 0);
          EXPECT_EQ(&sample, &samples[next]);
          for (size_t t = 0; t < values.size(); ++t)
            EXPECT_NEAR(values[t], want_values[next][static_cast<int64_t>(t)].item<double>(), 1e-5);
          ++next;
        });
    critic->network().backward(tape, d_hidden, routed);
    EXPECT_EQ(next, samples.size());
    EXPECT_NEAR(loss.metrics(loss.take_sums())[0].second, want_loss.item<double>(), 1e-5);
    for (size_t i = 0; i < critic->parameters().size(); ++i) {
      const std::string parameter = critic->parameters()[i].name();
      const at::Tensor want =
          parameter == "score.weight" ? score.grad() : dense.parameters().at(parameter).grad();
      EXPECT_LT(largest_absolute(gradients.tensors[i] - want), 1e-5 * (1 + largest_absolute(want)))
          << name << " " << parameter;
      EXPECT_GT(largest_absolute(want), 0) << name << " " << parameter;
    }
  }
}

TEST(ValueModelTest, BeginsWithValuesOfZeroAndLeavesTheLmHeadOut) {
  const ValueModel critic(golden_model("qwen3_untied"));
  const auto comm = solo();
  const std::vector<TrainSample> samples = random_samples(1, 2);
  for (const auto& values : values_of(critic, samples, 1000, *comm))
    for (const float value : values) EXPECT_EQ(value, 0);
  EXPECT_EQ(critic.parameters().size(), critic.network().parameters().size());
  for (const model::Parameter& parameter : critic.parameters())
    EXPECT_NE(parameter.name(), "lm_head.weight");
  EXPECT_EQ(critic.parameters().back().name(), "score.weight");
}

TrainerOptions small_steps() {
  TrainerOptions options;
  options.max_tokens = 20;  // several packs
  options.optim.lr = 3e-3;
  options.loss = loss_with("token-mean");
  return options;
}

// A run's steps: values, then an update of two mini-batches.
struct Learner {
  Learner(cluster::Comm& comm, const TrainerOptions& options, const char* model = "qwen3_untied")
      : comm(comm),
        critic(golden_model(model)),
        trainer(critic.network(), options, comm, {.total_steps = 100, .critic = &critic}) {}

  void learn(int steps) {
    for (int step = 0; step < steps; ++step) {
      const auto values = values_of(critic, samples, 20, comm);
      for (size_t i = 0; i < samples.size(); ++i) samples[i].values = values[i];
      stats = trainer.update(samples, LossKind::kValue, /*samples_per_step=*/4);
      losses.push_back(stats.metrics.front().second);
    }
  }
  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> all;
    for (const model::Parameter& parameter : critic.parameters())
      all.push_back(parameter.read(critic.network().device()));
    return all;
  }

  cluster::Comm& comm;
  ValueModel critic;
  Trainer trainer;
  std::vector<TrainSample> samples = random_samples(8, 4);
  std::vector<double> losses;
  TrainStats stats;
};

TEST(ValueModelTest, LossFallsAndTheLmHeadStays) {
  const auto comm = solo();
  Learner learner(*comm, small_steps());
  const auto lm_head = [&] {
    return model::find(learner.critic.network().parameters(), "lm_head.weight")
        .read(learner.critic.network().device());
  };
  const at::Tensor before = lm_head();
  learner.learn(40);
  EXPECT_EQ(learner.stats.metrics.front().first, "critic/vf_loss");
  EXPECT_LT(learner.losses.back(), 0.3 * learner.losses.front())
      << learner.losses.front() << " -> " << learner.losses.back();
  EXPECT_TRUE(lm_head().equal(before));
  EXPECT_TRUE(std::isnan(learner.stats.logprob_difference)) << "values are no logprobs";
  std::vector<std::string> names;
  for (const auto& metric : learner.stats.metrics) names.push_back(metric.first);
  EXPECT_THAT(names, testing::ElementsAre("critic/vf_loss", "critic/vf_clipfrac",
                                          "critic/vpred_mean", "critic/grad_norm", "critic/lr"));
}

TEST(ValueModelTest, WorkersMemoryAndSharedOptimizerChangeNoBit) {
  const auto comm = solo();
  Learner want(*comm, small_steps());
  want.learn(3);
  for (const int workers : {2, 3})
    for (const bool is_shared : {false, true})
      run_workers(workers, [&](cluster::Comm& all) {
        TrainerOptions options = small_steps();
        options.use_distributed_optimizer = is_shared;
        options.recompute = is_shared;
        Learner learner(all, options);
        learner.learn(3);
        EXPECT_TRUE(tests::all_equal(learner.weights(), want.weights()))
            << all.rank() << " of " << workers << ", shared: " << is_shared;
        EXPECT_EQ(learner.losses, want.losses);
      });
}

TEST(ValueModelTest, WorkerLostInAnyCollectiveChangesNoBit) {
  const auto comm = solo();
  Learner want(*comm, small_steps());
  want.learn(2);
  int losses = 0;
  for (int64_t call = 1;; ++call, ++losses) {
    const bool has_lost = run_losing_one(3, call, Loss::kInCollective, [&](cluster::Comm& all) {
      Learner learner(all, small_steps());
      learner.learn(2);
      EXPECT_TRUE(tests::all_equal(learner.weights(), want.weights())) << "collective " << call;
    });
    if (!has_lost) break;
  }
  EXPECT_GT(losses, 3);
}

TEST(ValueModelTest, InvalidGradientSkipsTheStep) {
  const auto comm = solo();
  Learner learner(*comm, small_steps());
  learner.learn(1);
  const auto before = learner.weights();
  learner.samples[0].returns[0] = std::numeric_limits<float>::infinity();
  const TrainStats stats = learner.trainer.update(learner.samples, LossKind::kValue);
  EXPECT_EQ(stats.skipped_steps, 1);
  EXPECT_THAT(stats.fault, testing::HasSubstr("is not finite"));
  EXPECT_TRUE(tests::all_equal(learner.weights(), before));
  EXPECT_EQ(learner.trainer.optimizer().skipped_in_row(), 1);
}

TEST(ValueModelTest, FolderKeepsNetworkAndHead) {
  const TestFolder folder;
  const auto comm = solo();
  Learner learner(*comm, small_steps(), "qwen2_tied");
  learner.learn(2);
  learner.critic.snapshot(kGolden + "models/qwen2_tied")(folder.path());
  ValueModel again(model::load_policy(folder.path(), Device::cpu(1), at::kFloat));
  again.load_head(folder.path());
  EXPECT_EQ(values_of(again, learner.samples, 1000, *comm),
            values_of(learner.critic, learner.samples, 20, *comm));

  ValueModel policy(golden_model("qwen2_tied"));
  policy.load_head(kGolden + "models/qwen2_tied");  // has none
  EXPECT_EQ(largest_absolute(policy.score()), 0);
  model::write_safetensors(folder.path() + kValueHeadFile,
                           {model::TensorSource::of("score.weight", at::zeros({1, 7}))});
  EXPECT_THROW(again.load_head(folder.path()), InputError);
  model::write_safetensors(folder.path() + kValueHeadFile,
                           {model::TensorSource::of("weight", at::zeros({1, 7}))});
  EXPECT_THROW(again.load_head(folder.path()), InputError);
}

}  // namespace
}  // namespace tlt::train
