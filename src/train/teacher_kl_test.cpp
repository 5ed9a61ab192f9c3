// SPDX-License-Identifier: Apache-2.0
#include "train/teacher_kl.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "model/tape.h"
#include "tests/support/dense_model.h"
#include "tests/support/golden_batch.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_comm.h"
#include "train/policy_loss.h"
#include "train/trainer.h"

namespace tlt::train {
namespace {

// The log probabilities of the outcomes: the teacher's k most probable tokens and the rest.
at::Tensor plain_outcomes(const at::Tensor& log_p, const at::Tensor& top) {
  const at::Tensor rest = log_p.scatter(-1, top, -std::numeric_limits<double>::infinity());
  return at::cat({log_p.gather(-1, top), rest.logsumexp(-1, /*keepdim=*/true)}, -1);
}

// By autograd in float64: the divergence of each row. The temperature divides the logits.
at::Tensor plain_kl(const at::Tensor& student, const at::Tensor& teacher, double temperature,
                    const TeacherKl& kl = {}) {
  at::Tensor log_p = (student / temperature).log_softmax(-1),
             log_q = (teacher / temperature).log_softmax(-1);
  if (kl.top_k > 0 && kl.top_k < student.size(-1)) {
    const at::Tensor top = std::get<1>(log_q.topk(kl.top_k, -1));
    log_p = plain_outcomes(log_p, top);
    log_q = plain_outcomes(log_q, top);
  }
  return kl.is_forward ? (log_q.exp() * (log_q - log_p)).sum(-1)
                       : (log_p.exp() * (log_p - log_q)).sum(-1);
}

double largest_of(const at::Tensor& values) { return values.abs().max().item<double>(); }

TEST(TeacherKlTest, ValuesAndGradientsAreAutogradsOn300RandomCases) {
  at::manual_seed(1);
  std::mt19937 random(1);
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const Device device = Device::cpu(2);
  for (int i = 0; i < 300; ++i) {
    const int64_t tokens = pick(2, 200), count = pick(1, 4);
    const TeacherKl kl{.is_forward = pick(0, 1) == 1, .top_k = pick(0, tokens + 1)};
    const double temperature = std::array{1.0, 0.7, 1.3}[static_cast<size_t>(pick(0, 2))],
                 spread = std::array{0.1, 3.0, 30.0}[static_cast<size_t>(pick(0, 2))];
    const at::Tensor student = at::randn({count, tokens}) * spread,
                     teacher = at::randn({count, tokens}) * 3;
    at::Tensor exact = student.to(at::kDouble);
    exact.requires_grad_(true);
    const at::Tensor want = plain_kl(exact, teacher.to(at::kDouble), temperature, kl);
    std::vector<float> factors;
    for (int64_t row = 0; row < count; ++row)
      factors.push_back(static_cast<float>(pick(-4, 4)) / 2);
    (want * at::tensor(factors, at::kDouble)).sum().backward();
    at::Tensor values = teacher.clone();
    const std::vector<float> got = teacher_kl({device, student, temperature, kl}, values);
    scale_rows(factors, values);
    EXPECT_LT(largest_of(at::tensor(got, at::kDouble) - want.detach()),
              1e-5 * (1 + largest_of(want)))
        << "case " << i;
    EXPECT_LT(largest_of(values - exact.grad()), 1e-5 * (1 + largest_of(exact.grad())))
        << "case " << i << ": forward " << kl.is_forward << ", top " << kl.top_k << " of " << tokens
        << ", spread " << spread << ", temperature " << temperature;
  }
}

TEST(TeacherKlTest, RowDoesNotDependOnTheOthers) {
  at::manual_seed(2);
  const at::Tensor student = at::randn({7, 100}), teacher = at::randn({7, 100});
  const Device many = Device::cpu(3), one = Device::cpu(1);
  for (const TeacherKl& options : {TeacherKl{}, TeacherKl{.is_forward = true, .top_k = 9}}) {
    at::Tensor all = teacher.clone();
    const std::vector<float> kl = teacher_kl({many, student, 1, options}, all);
    for (int64_t i = 0; i < 7; ++i) {
      at::Tensor single = teacher.narrow(0, i, 1).clone();
      EXPECT_EQ(teacher_kl({one, student.narrow(0, i, 1), 1, options}, single)[0],
                kl[static_cast<size_t>(i)]);
      EXPECT_TRUE(single.equal(all.narrow(0, i, 1))) << i;
    }
  }
}

TEST(TeacherKlTest, ModelIsNotFarFromItself) {
  const at::Tensor student = at::randn({3, 50}) * 20;
  const Device device = Device::cpu(1);
  for (const bool is_forward : {false, true})
    for (const int64_t top_k : {0, 1, 49, 50}) {
      at::Tensor values = student.clone();
      for (const float one : teacher_kl({device, student, 1, {is_forward, top_k}}, values))
        EXPECT_EQ(one, 0);
      EXPECT_LT(largest_of(values), 1e-5);
    }
}

// What the student has outside the teacher's top k is not free, as it would be if the k were
// normalised; and the divergence over fewer outcomes is smaller.
TEST(TeacherKlTest, RestIsAnOutcome) {
  const Device device = Device::cpu(1);
  const auto row = [](const std::vector<float>& logits) { return at::tensor(logits).unsqueeze(0); };
  const at::Tensor teacher = row({3, 2, -1, -2, -3}), student = row({3, 2, 4, 0, -3});
  for (const bool is_forward : {false, true}) {
    const auto kl_of = [&](int64_t top_k) {
      at::Tensor values = teacher.clone();
      const float kl = teacher_kl({device, student, 1, {is_forward, top_k}}, values)[0];
      EXPECT_GT(values[0][2].item<float>(), 0) << top_k;
      return kl;
    };
    EXPECT_GT(kl_of(2), 0.5);
    for (const int64_t top_k : {1, 2, 3}) EXPECT_LT(kl_of(top_k), kl_of(top_k + 1));
    EXPECT_FLOAT_EQ(kl_of(4), kl_of(0)) << "the rest is one token";
  }
}

// An invalid gradient must be seen as one, and must not end the process.
TEST(TeacherKlTest, NotANumberStaysOne) {
  const Device device = Device::cpu(1);
  const at::Tensor student = at::full({1, 40}, std::numeric_limits<float>::quiet_NaN());
  at::Tensor values = at::full({1, 40}, std::numeric_limits<float>::quiet_NaN());
  teacher_kl({device, student, 1, {.is_forward = false, .top_k = 5}}, values);
  EXPECT_TRUE(values.isnan().all().item<bool>());
}

// ---- the loss of a whole model

LossOptions distillation_only(const std::string& mode = "reverse_kl", int64_t top_k = 0) {
  LossOptions options;
  options.distillation = {
      .teacher = "t", .loss_mode = mode, .top_k = top_k, .coef = 0.5, .use_task_rewards = false};
  return options;
}

std::vector<TrainSample> samples_without_advantages() {
  std::vector<TrainSample> samples = golden_samples(read_golden("qwen2_tied"), "t07");
  for (TrainSample& sample : samples) std::ranges::fill(sample.advantages, 0.0F);
  return samples;
}

constexpr double kTemperature = 0.7;

// The sum of the tokens' divergences by autograd, and the number of tokens.
std::pair<at::Tensor, int64_t> plain_sum(const tests::DenseModel& student,
                                         const tests::DenseModel& teacher,
                                         const std::vector<TrainSample>& samples,
                                         const TeacherKl& kl) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  int64_t tokens = 0;
  for (const TrainSample& sample : samples) {
    const auto rows = [&](const tests::DenseModel& model) {
      return model.logits(sample.tokens)
          .narrow(0, sample.response_begin - 1, sample.response_size());
    };
    sum = sum + plain_kl(rows(student), rows(teacher), kTemperature, kl).sum();
    tokens += sample.response_size();
  }
  return {sum, tokens};
}

// The gradients of the model under `loss`, with the teacher.
model::Gradients gradients_of(const model::PolicyModel& student, const model::PolicyModel& teacher,
                              const std::vector<TrainSample>& samples, const TeacherKl& kl,
                              TokenLoss& loss) {
  model::Tape tape(student, /*recompute=*/false), teacher_tape(teacher, /*recompute=*/true);
  std::vector<PackedSample> pack;
  for (const TrainSample& sample : samples) {
    pack.push_back({&sample, tape.batch().rows()});
    for (model::Tape* const one : {&tape, &teacher_tape})
      one->add_sequence(sample.tokens.data(), static_cast<int32_t>(sample.tokens.size()));
  }
  HeadLoss head(student, kTemperature, /*logits_bytes=*/1);  // several chunks
  head.set_teacher(teacher, kl);
  head.show_teacher(teacher.forward(teacher_tape));
  model::Gradients gradients = student.make_gradients();
  student.backward(tape,
                   head.backward(student.forward(tape), pack, loss, gradients,
                                 [](const TrainSample&, int64_t, std::span<const float>) {}),
                   gradients);
  return gradients;
}

void expect_autograds(const model::PolicyModel& student, const model::Gradients& gradients,
                      const tests::DenseModel& dense) {
  for (size_t i = 0; i < gradients.tensors.size(); ++i) {
    const std::string& name = student.parameters()[i].name();
    const at::Tensor want = dense.parameters().at(name).grad();
    EXPECT_LT(largest_of(gradients.tensors[i] - want), 1e-5 * (1 + largest_of(want))) << name;
    EXPECT_GT(largest_of(want), 0) << name;
  }
}

std::map<std::string, double> loss_metrics(TokenLoss& loss) {
  const auto metrics = loss.metrics(loss.take_sums());
  return {metrics.begin(), metrics.end()};
}

class ExactDistillationTest : public ::testing::TestWithParam<std::pair<const char*, int64_t>> {
 protected:
  const LossOptions options_ = distillation_only(GetParam().first, GetParam().second);
  const TeacherKl kl_{options_.distillation.is_forward(), options_.distillation.top_k};
  const std::unique_ptr<model::PolicyModel> student_ = golden_model("qwen2_tied"),
                                            teacher_ = golden_model("llama_tied");
};

TEST_P(ExactDistillationTest, GradientsOfThePolicyLossAreAutograds) {
  const std::vector<TrainSample> samples = samples_without_advantages();
  const tests::DenseModel dense(*student_, /*trainable=*/true), dense_teacher(*teacher_);
  const auto [sum, tokens] = plain_sum(dense, dense_teacher, samples, kl_);
  const double mean = sum.item<double>() / static_cast<double>(tokens);
  (sum * (0.5 / static_cast<double>(tokens))).backward();

  PolicyLoss loss(options_, {options_, samples});
  expect_autograds(*student_, gradients_of(*student_, *teacher_, samples, kl_, loss), dense);
  const std::map<std::string, double> metrics = loss_metrics(loss);
  EXPECT_NEAR(metrics.at("distillation/kl"), mean, 1e-5 * mean);
  EXPECT_NEAR(metrics.at("actor/loss"), 0.5 * mean, 1e-5 * mean);
  EXPECT_GT(mean, 0.1);
}

// tlt sft with a teacher: negative log-likelihood plus coef times the divergence, of the tokens that
// count.
TEST_P(ExactDistillationTest, GradientsOfTheSupervisedLossAreAutograds) {
  std::vector<TrainSample> samples = samples_without_advantages();
  const tests::DenseModel dense(*student_, /*trainable=*/true), dense_teacher(*teacher_);
  const auto [sum, tokens] = plain_sum(dense, dense_teacher, samples, kl_);
  at::Tensor likelihood = at::zeros({}, at::kDouble);
  for (TrainSample& sample : samples) {
    const at::Tensor rows = (dense.logits(sample.tokens) / kTemperature).log_softmax(-1);
    for (int64_t t = sample.response_begin; t < std::ssize(sample.tokens); ++t)
      likelihood = likelihood + rows[t - 1][sample.tokens[static_cast<size_t>(t)]];
  }
  ((0.5 * sum - likelihood) / static_cast<double>(tokens)).backward();

  SupervisedLoss loss(samples, options_.distillation);
  expect_autograds(*student_, gradients_of(*student_, *teacher_, samples, kl_, loss), dense);
  const std::map<std::string, double> metrics = loss_metrics(loss);
  const double mean = sum.item<double>() / static_cast<double>(tokens);
  EXPECT_NEAR(metrics.at("distillation/kl"), mean, 1e-5 * mean);
  EXPECT_NEAR(metrics.at("train/loss"), -likelihood.item<double>() / static_cast<double>(tokens),
              1e-4);
}

INSTANTIATE_TEST_SUITE_P(Modes, ExactDistillationTest,
                         ::testing::Values(std::pair("reverse_kl", 0), std::pair("reverse_kl", 4),
                                           std::pair("forward_kl", 0), std::pair("forward_kl", 4)));

// Packs, workers, memory mode and gradients that were computed early change no bit.
void expect_same_bits(LossKind kind, const LossOptions& loss) {
  const std::vector<TrainSample> samples = samples_without_advantages();
  std::vector<at::Tensor> want;
  double kl = 0;
  for (const int workers : {1, 2, 3}) {
    std::vector<std::vector<at::Tensor>> got(static_cast<size_t>(workers));
    run_workers(workers, [&](cluster::Comm& comm) {
      const auto model = golden_model("qwen2_tied"), teacher = golden_model("llama_tied");
      TrainerOptions options;
      options.max_tokens = 40;
      options.optim.lr = 1e-3;
      options.recompute = workers == 2;
      options.loss = loss;
      Trainer trainer(*model, options, comm, {.total_steps = 10, .teacher = teacher.get()});
      for (int step = 0; step < 2; ++step) {
        if (workers == 3 && comm.rank() == 1 && kind == LossKind::kPolicy)
          while (trainer.compute_early(samples)) continue;
        const TrainStats stats = trainer.update(samples, kind);
        const std::map<std::string, double> metrics(stats.metrics.begin(), stats.metrics.end());
        if (step == 0 && workers == 1) kl = metrics.at("distillation/kl");
        if (step == 1) {
          EXPECT_LT(metrics.at("distillation/kl"), kl);
        }
      }
      got[static_cast<size_t>(comm.rank())] = tests::weights_of(*model);
    });
    if (workers == 1) want = got[0];
    for (const auto& weights : got) EXPECT_TRUE(tests::all_equal(weights, want)) << workers;
  }
  EXPECT_FALSE(tests::all_equal(want, tests::weights_of(*golden_model("qwen2_tied"))));
}

TEST(DistillationTest, WorkersAndEarlyGradientsChangeNoBit) {
  expect_same_bits(LossKind::kPolicy, distillation_only());
  expect_same_bits(LossKind::kPolicy, distillation_only("forward_kl", /*top_k=*/5));
}

TEST(DistillationTest, WorkersChangeNoBitOfSupervisedDistillation) {
  expect_same_bits(LossKind::kSupervised, distillation_only("forward_kl"));
}

TEST(DistillationTest, NonsenseIsRefused) {
  const auto refused = [](const DistillationOptions& options) {
    EXPECT_THROW(options.check(), InputError);
  };
  DistillationOptions().check();
  DistillationOptions{.teacher = "t"}.check();
  refused({.teacher = "t", .loss_mode = "k9"});
  refused({.teacher = "t", .coef = 0});
  refused({.teacher = "t", .coef = std::numeric_limits<double>::quiet_NaN()});
  refused({.teacher = "", .use_task_rewards = false});
  DistillationOptions{.teacher = "t", .loss_mode = "forward_kl", .top_k = 8}.check();
  refused({.teacher = "t", .loss_mode = "forward_kl", .top_k = -1});
  refused({.teacher = "t", .loss_mode = "k3", .top_k = 8});
  const std::string url = "https://host:8000/v1";
  DistillationOptions{.teacher = url, .loss_mode = "k3"}.check();
  refused({.teacher = url, .loss_mode = "reverse_kl"});
  refused({.teacher = url, .loss_mode = "forward_kl"});
}

}  // namespace
}  // namespace tlt::train
