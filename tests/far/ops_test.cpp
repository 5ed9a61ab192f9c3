// The bodies of the operations for devices without kernels of our own, on a device that the host
// cannot touch: they compute what the CPU kernels compute, and round as often.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kv/kv_cache.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/sampling.h"
#include "tests/support/tensors.h"

namespace tlt::tests {
namespace {

using ops::Weight;

class FarOpsTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType type() const { return GetParam(); }
  at::Tensor far(const at::Tensor& tensor) const { return tensor.to(far_.torch()); }

  const Device cpu_ = Device::cpu(1), far_ = Device::parse("far", 1);
};

// The sum of product, bias and residual is rounded once: a second rounding moves half of the
// elements of bfloat16 by a unit.
TEST_P(FarOpsTest, LinearRoundsOnce) {
  const int64_t rows = 37, n = 96, k = 128;
  const at::Tensor x = far(random_tensor({rows, k}, type(), 1)),
                   values = random_tensor({n, k}, type(), 2, 0.1),
                   bias = far(random_tensor({n}, at::kFloat, 3)),
                   residual = far(random_tensor({rows, n}, type(), 4));
  Weight w(far_, n, k, type());
  w.assign(far_, values);
  at::Tensor out = far_.empty({rows, n}, type());
  ops::linear(far_, x, w, out, {.bias = &bias, .residual = &residual});
  const at::Tensor product =
      at::mm(x.to(at::kFloat), w.storage().to(at::kFloat).t()) + bias + residual;
  EXPECT_TRUE(tensors_equal(out, product.to(type())));

  at::Tensor gradient = residual.new_empty({rows, k});
  gradient.fill_(0.3);
  const at::Tensor want = gradient + at::mm(residual.to(at::kFloat), w.storage().to(at::kFloat));
  ops::linear_backward_input(far_, residual, w, gradient, /*accumulate=*/true);
  EXPECT_TRUE(tensors_equal(gradient, want.to(type())));
}

// The LM head and the gradients of weights are float32 sums of products that were never rounded.
TEST_P(FarOpsTest, Float32ResultsAreNotRounded) {
  const int64_t rows = 37, n = 96, k = 128;
  const at::Tensor x = random_tensor({rows, k}, type(), 1), d = random_tensor({rows, n}, type(), 2);
  Weight w(far_, n, k, type());
  w.assign(far_, random_tensor({n, k}, type(), 3, 0.1));
  at::Tensor logits = far_.empty({rows, n}, at::kFloat), dw = far_.zeros({n, k}, at::kFloat);
  ops::linear(far_, far(x), w, logits);
  ops::linear_backward_weight(far_, far(d), far(x), dw);
  const at::Tensor wide = x.to(at::kDouble);
  EXPECT_TRUE(tensors_near(logits, at::mm(wide, w.storage().cpu().to(at::kDouble).t()), 1e-5));
  EXPECT_TRUE(tensors_near(dw, at::mm(d.to(at::kDouble).t(), wide), 1e-5));
}

// A token that occurs several times: the same sum, in the same order, whatever the device.
TEST_P(FarOpsTest, GradientsOfEmbeddingsAreAddedInOrder) {
  const std::vector<int32_t> tokens = {3, 0, 3, 3, 5, 0, 3};
  const at::Tensor dx = random_tensor({7, 32}, type(), 1);
  at::Tensor want = cpu_.zeros({6, 32}, at::kFloat), got = far_.zeros({6, 32}, at::kFloat);
  ops::embed_backward(cpu_, dx, tokens, want);
  ops::embed_backward(far_, far(dx), tokens, got);
  EXPECT_TRUE(tensors_equal(got.cpu(), want));
}

TEST_P(FarOpsTest, GradientsOfLogitsAreTheCpus) {
  const int64_t rows = 5, vocabulary = 40;
  const at::Tensor logits = random_tensor({rows, vocabulary}, at::kFloat, 1, 3),
                   targets = at::arange(rows, at::kInt),
                   d_logprob = random_tensor({rows}, at::kFloat, 2),
                   d_entropy = random_tensor({rows}, at::kFloat, 3);
  const auto gradient = [&](const Device& device) {
    at::Tensor own = logits.to(device.torch(), at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    const ops::TargetRows target{own, vocabulary, targets, /*temperature=*/0.8};
    ops::RowStatistics statistics;
    ops::row_statistics(device, target, statistics);
    ops::logits_backward(device, target, statistics, d_logprob, d_entropy);
    return own.cpu();
  };
  EXPECT_TRUE(tensors_near(gradient(far_), gradient(cpu_), 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Types, FarOpsTest, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float32" : "bfloat16";
                         });

}  // namespace
}  // namespace tlt::tests
