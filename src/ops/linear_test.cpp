// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include "ops/aten_bodies.h"
#include "ops/elementwise.h"
#include "tests/support/tensors.h"
#include "tests/support/test_device.h"

namespace tlt::ops {
namespace {

using tests::random_tensor;
using tests::tensors_equal;
using tests::tensors_near;

struct Case {
  int64_t rows, n, k;
};

class LinearTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  static Device device() { return tests::test_device(/*threads=*/2); }
  at::ScalarType type() const { return GetParam(); }
  at::Tensor random(at::IntArrayRef sizes, uint32_t name, double scale = 1) const {
    return random_tensor(sizes, type(), name, scale).to(device().torch());
  }
};

const Case kCases[] = {{1, 64, 64}, {2, 120, 192},  {5, 200, 32},   {6, 64, 96},
                       {7, 65, 34}, {33, 321, 128}, {200, 130, 256}};

TEST_P(LinearTest, AgreesWithAten) {
  for (const auto& [rows, n, k] : kCases) {
    const Device d = device();
    const at::Tensor x = random({rows, k}, 1), values = random({n, k}, 2, 0.1),
                     residual = random({rows, n}, 3);
    const at::Tensor bias = random({n}, 4).to(at::kFloat);
    Weight w(d, n, k, type());
    w.assign(d, values);
    for (const at::ScalarType out_type : {type(), at::kFloat}) {
      at::Tensor got = d.empty({rows, n}, out_type), want = d.empty({rows, n}, at::kFloat);
      const LinearExtras extras{.bias = &bias,
                                .residual = out_type == type() ? &residual : nullptr};
      linear(d, x, w, got, extras);
      const at::Tensor wide_residual = residual.to(at::kFloat);
      aten::linear(x.to(at::kFloat), values.to(at::kFloat), want,
                   {.bias = &bias, .residual = extras.residual ? &wide_residual : nullptr});
      EXPECT_TRUE(tensors_near(got, want, out_type == at::kFloat ? 1e-4 : tests::tolerance(type())))
          << rows << " x " << n << " x " << k;
    }
  }
}

// What a rank of a tensor parallel group computes, and one worker that computes all slices.
TEST_P(LinearTest, ASliceHasTheBitsOfAWeightOfItsOwn) {
  for (const int64_t slices : {2, 4})
    for (const int64_t rows : {1, 7, 200}) {
      const Device d = device();
      const int64_t n = 130, k = 64 * slices;
      const at::Tensor x = random({rows, k}, 1);
      Weight w(d, n, k, type());
      w.assign(d, random({n, k}, 2, 0.1));
      at::Tensor parts = d.empty({slices, rows, n}, at::kFloat);
      linear_slices(d, x, w, parts);
      for (int64_t i = 0; i < slices; ++i) {
        Weight own(d, n, k / slices, type());
        own.assign_columns(w, i * k / slices);
        at::Tensor want = d.empty({rows, n}, at::kFloat);
        linear(d, x.narrow(1, i * k / slices, k / slices).contiguous(), own, want);
        EXPECT_TRUE(tensors_equal(parts.select(0, i), want)) << "slice " << i << " of " << slices;
      }
    }
}

TEST_P(LinearTest, SlicesAreAddedInOrderAndRoundedOnce) {
  const Device d = device();
  const int64_t slices = 4, rows = 3, n = 2000;
  at::Tensor parts = random_tensor({slices, rows, n}, at::kFloat, 1).to(d.torch());
  const at::Tensor residual = random({rows, n}, 2);
  at::Tensor sum = d.empty({rows, n}, type()), reversed = d.empty({rows, n}, type());
  add_slices(d, parts, residual, sum);
  const at::Tensor host = parts.cpu(), added = residual.cpu().to(at::kFloat);
  at::Tensor want = host.select(0, 0).clone();
  for (int64_t i = 1; i < slices; ++i) want = want + host.select(0, i);
  EXPECT_TRUE(tensors_equal(sum.cpu(), (want + added).to(type())));
  const at::Tensor backwards = host.flip(0).contiguous().to(d.torch());
  add_slices(d, backwards, residual, reversed);
  if (type() == at::kFloat) {  // rounding to bfloat16 may hide the order
    EXPECT_FALSE(at::equal(sum.cpu(), reversed.cpu())) << "this test shows nothing about the order";
  }
  at::Tensor in_place = residual.clone();
  add_slices(d, parts, in_place, in_place);
  EXPECT_TRUE(tensors_equal(in_place, sum));
  add_slices(d, parts, /*residual=*/{}, sum);
  EXPECT_TRUE(tensors_equal(sum.cpu(), want.to(type())));
}

TEST_P(LinearTest, RowDoesNotDependOnOtherRows) {
  const int64_t n = 200, k = 320;
  Weight w(device(), n, k, type());
  w.assign(device(), random({n, k}, 2));
  const at::Tensor x = random({150, k}, 1);
  at::Tensor all = device().empty({150, n}, type());
  linear(device(), x, w, all);
  const Device alone = tests::test_device(/*threads=*/1);
  for (const int64_t rows : {1, 2, 3, 5, 6, 7, 8, 13, 97, 149}) {
    at::Tensor some = alone.empty({rows, n}, type());
    linear(alone, x.narrow(0, 150 - rows, rows).contiguous(), w, some);
    EXPECT_TRUE(tensors_equal(some, all.narrow(0, 150 - rows, rows))) << rows << " rows";
  }
}

// With gates and ups in separate panels, and in shared ones.
TEST_P(LinearTest, GatedIsLinearThenSwiglu) {
  const Device d = device();
  for (const int64_t columns : {64, 192, 96})
    for (const int64_t rows : {1, 8, 16, 130}) {
      const at::Tensor x = random({rows, 128}, 1);
      Weight w(d, 2 * columns, 128, type());
      w.assign(d, random({2 * columns, 128}, 2, 0.1));
      at::Tensor gate_up = d.empty({rows, 2 * columns}, type()),
                 want_gate_up = d.empty({rows, 2 * columns}, type());
      at::Tensor got = d.empty({rows, columns}, type()), want = d.empty({rows, columns}, type());
      gated_linear(d, x, w, gate_up, got);
      linear(d, x, w, want_gate_up);
      swiglu(d, want_gate_up, want);
      EXPECT_TRUE(tensors_equal(gate_up, want_gate_up)) << rows << " x " << columns;
      EXPECT_TRUE(tensors_equal(got, want)) << rows << " x " << columns;
    }
}

TEST_P(LinearTest, GradientsAgreeWithAten) {
  for (const auto& [rows, n, k] : kCases) {
    const Device d = device();
    const at::Tensor x = random({rows, k}, 1), dy = random({rows, n}, 2),
                     values = random({n, k}, 3, 0.1);
    Weight w(d, n, k, type());
    w.assign(d, values);
    at::Tensor dx = d.empty({rows, k}, type()), want_dx = d.empty({rows, k}, at::kFloat);
    linear_backward_input(d, dy, w, dx);
    aten::linear_backward_input(dy.to(at::kFloat), values.to(at::kFloat), want_dx, false);
    EXPECT_TRUE(tensors_near(dx, want_dx, tests::tolerance(type())))
        << rows << " x " << n << " x " << k;
    linear_backward_input(d, dy, w, dx, /*accumulate=*/true);
    EXPECT_TRUE(tensors_near(dx, 2 * want_dx, 2 * tests::tolerance(type())));

    at::Tensor dw = d.zeros({n, k}, at::kFloat), db = d.zeros({n}, at::kFloat);
    at::Tensor want_dw = d.zeros({n, k}, at::kFloat), want_db = d.zeros({n}, at::kFloat);
    for (int twice = 0; twice < 2; ++twice) {
      linear_backward_weight(d, dy, x, dw, &db);
      aten::linear_backward_weight(dy, x, want_dw, &want_db);
    }
    EXPECT_TRUE(tensors_near(dw, want_dw, 1e-4)) << rows << " x " << n << " x " << k;
    EXPECT_TRUE(tensors_near(db, want_db, 1e-4)) << rows << " x " << n << " x " << k;
  }
}

TEST_P(LinearTest, LongSumsOfTokensAgreeWithAten) {
  const Device d = device();
  const at::Tensor x = random({2500, 32}, 1), dy = random({2500, 70}, 2);
  at::Tensor dw = d.zeros({70, 32}, at::kFloat), want = d.zeros({70, 32}, at::kFloat);
  linear_backward_weight(d, dy, x, dw);
  aten::linear_backward_weight(dy, x, want, nullptr);
  EXPECT_TRUE(tensors_near(dw, want, 1e-3));
}

TEST_P(LinearTest, WeightReturnsItsValues) {
  const Device d = device();
  const at::Tensor values = random({130, 48}, 5);
  Weight w(d, 130, 48, type());
  w.assign(d, values.narrow(0, 0, 50));
  w.assign(d, values.narrow(0, 50, 80).to(at::kFloat), /*first_row=*/50);
  EXPECT_TRUE(tensors_equal(w.values(d), values));
  const std::vector<int32_t> tokens = {129, 0, 77};
  at::Tensor rows = d.empty({3, 48}, type());
  w.gather(d, tokens, rows);
  EXPECT_TRUE(tensors_equal(rows, values.index_select(0, aten::indices(tokens, d))));
}

INSTANTIATE_TEST_SUITE_P(Types, LinearTest, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float32" : "bfloat16";
                         });

}  // namespace
}  // namespace tlt::ops
