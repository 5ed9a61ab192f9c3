// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.h"
#include "base/check.h"

#include "ops/aten_bodies.h"
#include "tests/support/tensors.h"

namespace tlt::ops {
namespace {

using tests::random_tensor;
using tests::tensors_equal;
using tests::tensors_near;

class ElementwiseTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor random(at::IntArrayRef sizes, uint32_t name) const {
    return random_tensor(sizes, GetParam(), name);
  }
  Device device_ = Device::cpu(2);
};

constexpr int64_t kRows = 150, kColumns = 96;

TEST_P(ElementwiseTest, NormAgreesWithAten) {
  const at::Tensor x = random({kRows, kColumns}, 1),
                   weight = random_tensor({kColumns}, at::kFloat, 2);
  at::Tensor got = at::empty_like(x), want = at::empty_like(x);
  rms_norm(device_, x, weight, 1e-6, got);
  aten::rms_norm(x, weight, 1e-6, want);
  EXPECT_TRUE(tensors_near(got, want, tests::tolerance(GetParam())));
}

TEST_P(ElementwiseTest, NormOfARowDoesNotDependOnOtherRows) {
  const at::Tensor x = random({kRows, kColumns}, 1),
                   weight = random_tensor({kColumns}, at::kFloat, 2);
  at::Tensor all = at::empty_like(x), one = at::empty({1, kColumns}, GetParam());
  rms_norm(device_, x, weight, 1e-6, all);
  rms_norm(device_, x.narrow(0, 77, 1).contiguous(), weight, 1e-6, one);
  EXPECT_TRUE(tensors_equal(one, all.narrow(0, 77, 1)));
}

TEST_P(ElementwiseTest, NormGradientAgreesWithAten) {
  const at::Tensor x = random({kRows, kColumns}, 1), dy = random({kRows, kColumns}, 3);
  const at::Tensor weight = random_tensor({kColumns}, at::kFloat, 2);
  at::Tensor got = random({kRows, kColumns}, 4), want = got.clone();
  at::Tensor got_weight = at::zeros({kColumns}, at::kFloat), want_weight = got_weight.clone();
  rms_norm_backward(device_, {dy, x, weight, 1e-6, got, got_weight});
  aten::rms_norm_backward({dy, x, weight, 1e-6, want, want_weight});
  EXPECT_TRUE(tensors_near(got, want, tests::tolerance(GetParam())));
  EXPECT_TRUE(tensors_near(got_weight, want_weight, 1e-4));
}

TEST_P(ElementwiseTest, WeightGradientDoesNotDependOnThreads) {
  const at::Tensor x = random({kRows, kColumns}, 1), dy = random({kRows, kColumns}, 3);
  const at::Tensor weight = random_tensor({kColumns}, at::kFloat, 2);
  at::Tensor one = at::zeros({kColumns}, at::kFloat), three = one.clone();
  at::Tensor dx = at::zeros({kRows, kColumns}, GetParam()), dx3 = dx.clone();
  rms_norm_backward(Device::cpu(1), {dy, x, weight, 1e-6, dx, one});
  rms_norm_backward(Device::cpu(3), {dy, x, weight, 1e-6, dx3, three});
  EXPECT_TRUE(tensors_equal(one, three));
}

TEST_P(ElementwiseTest, SwigluAndItsGradientAgreeWithAten) {
  const at::Tensor gate_up = random({kRows, 2 * kColumns}, 1), d_out = random({kRows, kColumns}, 2);
  at::Tensor got = at::empty_like(d_out), want = at::empty_like(d_out);
  swiglu(device_, gate_up, got);
  aten::swiglu(gate_up, want);
  EXPECT_TRUE(tensors_near(got, want, tests::tolerance(GetParam())));
  at::Tensor got_d = at::empty_like(gate_up), want_d = at::empty_like(gate_up);
  swiglu_backward(device_, d_out, gate_up, got_d);
  aten::swiglu_backward(d_out, gate_up, want_d);
  EXPECT_TRUE(tensors_near(got_d, want_d, tests::tolerance(GetParam())));
}

TEST_P(ElementwiseTest, EmbeddingGradientAddsRowsOfTheSameToken) {
  const std::vector<int32_t> tokens = {2, 0, 2};
  const at::Tensor dx = random({3, 16}, 1);
  at::Tensor table = at::zeros({4, 16}, at::kFloat);
  embed_backward(device_, dx, tokens, table);
  EXPECT_TRUE(tensors_near(table[2], dx[0].to(at::kFloat) + dx[2].to(at::kFloat), 1e-6));
  EXPECT_TRUE(tensors_equal(table[1], at::zeros({16})));
}

TEST_P(ElementwiseTest, ColumnsArePutNextToOthers) {
  const at::Tensor left = random({3, 16}, 1), right = random({3, 8}, 2);
  at::Tensor joined = at::zeros({3, 24}, left.options());
  put_columns(device_, right, joined, 16);
  put_columns(device_, left, joined, 0);
  EXPECT_TRUE(tensors_equal(joined, at::cat({left, right}, 1)));
  EXPECT_THROW(put_columns(device_, right, joined, 17), Error);
}

INSTANTIATE_TEST_SUITE_P(Types, ElementwiseTest, ::testing::Values(at::kFloat, at::kBFloat16));

}  // namespace
}  // namespace tlt::ops
