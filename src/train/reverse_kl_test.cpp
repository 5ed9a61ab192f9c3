// SPDX-License-Identifier: Apache-2.0
#include "train/reverse_kl.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "model/tape.h"
#include "tests/support/dense_model.h"
#include "tests/support/golden_batch.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_comm.h"
#include "train/policy_loss.h"
#include "train/trainer.h"

namespace tlt::train {
namespace {

// By autograd in float64: the divergence of each row. The temperature divides the logits.
at::Tensor plain_kl(const at::Tensor& student, const at::Tensor& teacher, double temperature) {
  const at::Tensor log_p = (student / temperature).log_softmax(-1),
                   log_q = (teacher / temperature).log_softmax(-1);
  return (log_p.exp() * (log_p - log_q)).sum(-1);
}

double largest_of(const at::Tensor& values) { return values.abs().max().item<double>(); }

TEST(ReverseKlTest, ValuesAndGradientsAreAutograds) {
  at::manual_seed(1);
  const Device device = Device::cpu(2);
  for (const double temperature : {1.0, 0.7})
    for (const double spread : {0.1, 3.0, 30.0}) {
      const at::Tensor student = at::randn({5, 321}) * spread, teacher = at::randn({5, 321}) * 3;
      at::Tensor exact = student.to(at::kDouble);
      exact.requires_grad_(true);
      const at::Tensor want = plain_kl(exact, teacher.to(at::kDouble), temperature);
      const std::vector<float> scale = {1, -2, 0, 0.5, 3};
      (want * at::tensor(scale, at::kDouble)).sum().backward();
      at::Tensor values = teacher.clone();
      const KlRows rows{device, student, temperature};
      const std::vector<float> kl = reverse_kl(rows, values);
      reverse_kl_backward(rows, kl, scale, values);
      EXPECT_LT(largest_of(at::tensor(kl, at::kDouble) - want.detach()),
                1e-5 * (1 + largest_of(want)));
      EXPECT_LT(largest_of(values - exact.grad()), 1e-5 * (1 + largest_of(exact.grad())))
          << "spread " << spread << ", temperature " << temperature;
    }
}

TEST(ReverseKlTest, RowDoesNotDependOnTheOthers) {
  at::manual_seed(2);
  const at::Tensor student = at::randn({7, 100}), teacher = at::randn({7, 100});
  at::Tensor all = teacher.clone();
  const Device many = Device::cpu(3), one = Device::cpu(1);
  const std::vector<float> kl = reverse_kl({many, student, 1}, all);
  for (int64_t i = 0; i < 7; ++i) {
    at::Tensor single = teacher.narrow(0, i, 1).clone();
    EXPECT_EQ(reverse_kl({one, student.narrow(0, i, 1), 1}, single)[0], kl[static_cast<size_t>(i)]);
    EXPECT_TRUE(single.equal(all.narrow(0, i, 1))) << i;
  }
}

TEST(ReverseKlTest, ModelIsNotFarFromItself) {
  const at::Tensor student = at::randn({3, 50}) * 20;
  at::Tensor values = student.clone();
  const Device device = Device::cpu(1);
  const std::vector<float> kl = reverse_kl({device, student, 1}, values);
  for (const float one : kl) EXPECT_EQ(one, 0);
  reverse_kl_backward({device, student, 1}, kl, std::vector<float>{1, 1, 1}, values);
  EXPECT_LT(largest_of(values), 1e-5);
}

// ---- the loss of a whole model

LossOptions distillation_only() {
  LossOptions options;
  options.distillation = {
      .teacher = "t", .loss_mode = "reverse_kl", .coef = 0.5, .use_task_rewards = false};
  return options;
}

std::vector<TrainSample> samples_without_advantages() {
  std::vector<TrainSample> samples = golden_samples(read_golden("qwen2_tied"), "t07");
  for (TrainSample& sample : samples) std::ranges::fill(sample.advantages, 0.0F);
  return samples;
}

TEST(DistillationTest, GradientsOfTheModelAreAutograds) {
  constexpr double kTemperature = 0.7;
  const auto student = golden_model("qwen2_tied"), teacher = golden_model("llama_tied");
  const std::vector<TrainSample> samples = samples_without_advantages();
  const tests::DenseModel dense(*student, /*trainable=*/true), dense_teacher(*teacher);
  at::Tensor sum = at::zeros({}, at::kDouble);
  int64_t tokens = 0;
  for (const TrainSample& sample : samples) {
    const auto rows = [&](const tests::DenseModel& model) {
      return model.logits(sample.tokens)
          .narrow(0, sample.response_begin - 1, sample.response_size());
    };
    sum = sum + plain_kl(rows(dense), rows(dense_teacher), kTemperature).sum();
    tokens += sample.response_size();
  }
  const double mean = sum.item<double>() / static_cast<double>(tokens);
  (sum * (0.5 / static_cast<double>(tokens))).backward();

  PolicyLoss loss(distillation_only(), {distillation_only(), samples});
  model::Tape tape(*student, /*recompute=*/false), teacher_tape(*teacher, /*recompute=*/true);
  std::vector<PackedSample> pack;
  for (const TrainSample& sample : samples) {
    pack.push_back({&sample, tape.batch().rows()});
    for (model::Tape* const one : {&tape, &teacher_tape})
      one->add_sequence(sample.tokens.data(), static_cast<int32_t>(sample.tokens.size()));
  }
  HeadLoss head(*student, kTemperature, /*logits_bytes=*/1);  // several chunks
  head.set_teacher(*teacher);
  head.show_teacher(teacher->forward(teacher_tape));
  model::Gradients gradients = student->make_gradients();
  student->backward(tape,
                    head.backward(student->forward(tape), pack, loss, gradients,
                                  [](const TrainSample&, int64_t, std::span<const float>) {}),
                    gradients);
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : loss.metrics(loss.take_sums())) metrics[name] = value;
  EXPECT_NEAR(metrics.at("distillation/kl"), mean, 1e-5 * mean);
  EXPECT_NEAR(metrics.at("actor/loss"), 0.5 * mean, 1e-5 * mean);
  EXPECT_GT(mean, 0.1);
  for (size_t i = 0; i < gradients.tensors.size(); ++i) {
    const std::string& name = student->parameters()[i].name();
    const at::Tensor want = dense.parameters().at(name).grad();
    EXPECT_LT(largest_of(gradients.tensors[i] - want), 1e-5 * (1 + largest_of(want))) << name;
    EXPECT_GT(largest_of(want), 0) << name;
  }
}

// Packs, workers, memory mode and gradients that were computed early change no bit.
TEST(DistillationTest, WorkersAndEarlyGradientsChangeNoBit) {
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
      options.loss = distillation_only();
      Trainer trainer(*model, options, comm, {.total_steps = 10, .teacher = teacher.get()});
      for (int step = 0; step < 2; ++step) {
        if (workers == 3 && comm.rank() == 1)
          while (trainer.compute_early(samples)) continue;
        const TrainStats stats = trainer.update(samples, LossKind::kPolicy);
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
}

}  // namespace
}  // namespace tlt::train
