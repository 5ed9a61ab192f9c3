// Matrix products on a device whose library chooses its kernel by the sizes of a call: rows keep
// their bits, or the matrix is refused.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <set>

#include "base/check.h"
#include "ops/device_product.h"
#include "ops/padded_rows.h"
#include "ops/product_probe.h"
#include "tests/support/far_device.h"
#include "tests/support/tensors.h"
#include "tests/support/test_device.h"

namespace tlt::tests {
namespace {

using ops::ProductPlan;
using ops::Weight;
using ::testing::HasSubstr;

class FarProductsTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  ~FarProductsTest() override { set_far_sum_order(nullptr); }

  at::ScalarType type() const { return GetParam(); }
  at::Tensor random(at::IntArrayRef sizes, uint32_t name, double scale = 1) const {
    return random_tensor(sizes, type(), name, scale).to(far_.torch());
  }
  // With random values.
  Weight weight(int64_t n, int64_t k) const {
    Weight w(far_, n, k, type());
    w.assign(far_, random({n, k}, 2, 0.1));
    return w;
  }
  // x W^T of the last `rows` of x, as float32.
  at::Tensor last_rows(const Weight& w, const at::Tensor& x, int64_t rows) const {
    at::Tensor out = far_.empty({rows, w.rows()}, at::kFloat);
    ops::linear(far_, x.narrow(0, x.size(0) - rows, rows).contiguous(), w, out);
    return out;
  }
  void expect_rows_of_their_own(const Weight& w) const {
    const at::Tensor x = random({700, w.columns()}, 1), all = last_rows(w, x, 700);
    for (const int64_t rows : {1, 2, 3, 5, 8, 13, 100, 509, 512, 513, 600})
      EXPECT_TRUE(tensors_equal(last_rows(w, x, rows), all.narrow(0, 700 - rows, rows)))
          << rows << " rows";
  }

  const Device far_ = Device::parse("far", 1);
};

TEST(PaddedRowsTest, AreThe67OfTheDesign) {
  const std::vector<int64_t> all = ops::all_padded_rows();
  EXPECT_EQ(all.size(), 67U);
  EXPECT_EQ(std::vector<int64_t>(all.begin(), all.begin() + 7),
            (std::vector<int64_t>{1, 2, 4, 8, 16, 24, 32}));
  EXPECT_EQ(all.back(), ops::kMostPaddedRows);
  const std::set<int64_t> known(all.begin(), all.end());
  for (int64_t rows = 1; rows <= 512; ++rows) {
    EXPECT_GE(ops::padded_rows(rows), rows);
    EXPECT_LT(ops::padded_rows(rows), rows + 8);
    EXPECT_TRUE(known.contains(ops::padded_rows(rows)));
  }
}

// A narrow matrix: slices of the sum, added in order, then bias and residual, one rounding.
TEST_P(FarProductsTest, SlicesAreAddedInOrderAndRoundedOnce) {
  const int64_t n = 40, k = 2048;
  const Weight w = weight(n, k);
  ASSERT_EQ(w.plans().forward, ProductPlan{.slices = 4});
  const at::Tensor bias = random_tensor({n}, at::kFloat, 3).to(far_.torch());
  for (const int64_t rows : {1, 3, 16, 530}) {
    const at::Tensor x = random({rows, k}, 1), residual = random({rows, n}, 4);
    at::Tensor out = far_.empty({rows, n}, type());
    ops::linear(far_, x, w, out, {.bias = &bias, .residual = &residual});
    at::Tensor sum;
    for (int64_t first = 0; first < k; first += k / 4) {
      const at::Tensor slice = at::mm(x.narrow(1, first, k / 4).to(at::kFloat),
                                      w.storage().narrow(1, first, k / 4).to(at::kFloat).t());
      sum = sum.defined() ? sum + slice : slice;
    }
    EXPECT_TRUE(tensors_equal(out, (sum + bias + residual).to(type()))) << rows << " rows";
  }
}

// Without a conversion of the weight, or a copy of the result: one call of the library.
TEST_P(FarProductsTest, AProductIsOneOperation) {
  const Weight w = weight(96, 128);
  const at::Tensor x = random({16, 128}, 1), dy = random({16, 96}, 2);
  at::Tensor logits = far_.empty({16, 96}, at::kFloat), out = random({16, 96}, 3),
             dw = far_.zeros({96, 128}, at::kFloat), dx = random({16, 128}, 4);
  const auto operations = [](const std::function<void()>& work) {
    const int64_t before = far_counts().operations;
    work();
    return far_counts().operations - before;
  };
  EXPECT_EQ(operations([&] { ops::linear(far_, x, w, logits); }), 1);
  EXPECT_EQ(operations([&] { ops::linear(far_, x, w, out); }), 1);
  EXPECT_EQ(operations([&] { ops::linear(far_, x, w, out, {.residual = &out}); }), 1);
  EXPECT_EQ(operations([&] { ops::linear_backward_weight(far_, dy, x, dw); }), 1);
  EXPECT_EQ(operations([&] { ops::linear_backward_input(far_, dy, w, dx); }), 1);
}

// A library that adds in another order for every number of rows but those that products are padded
// to: no product has another one.
TEST_P(FarProductsTest, OnlyPaddedNumbersOfRowsAreMultiplied) {
  const std::vector<int64_t> counts = ops::row_counts(56);
  const std::set<int64_t> known(counts.begin(), counts.end());
  EXPECT_EQ(counts.back(), 2048);
  set_far_sum_order([&](int64_t rows, int64_t) { return known.contains(rows) ? 0 : 5; });
  const Weight w = weight(56, 130);
  EXPECT_EQ(w.plans().forward, ProductPlan{});
  expect_rows_of_their_own(w);
  const at::Tensor x = random({3000, 130}, 1);
  EXPECT_TRUE(tensors_equal(last_rows(w, x, 3000).narrow(0, 2900, 100), last_rows(w, x, 100)));
}

TEST_P(FarProductsTest, RowsThatDependOnTheirNumberAreRefusedByName) {
  set_far_sum_order([](int64_t rows, int64_t) { return rows == 136 ? 1 : 0; });
  const std::string name = type() == at::kFloat ? "[72, 88] float32" : "[72, 88] bfloat16";
  EXPECT_THAT([&] { Weight(far_, 72, 88, type()); },
              ::testing::ThrowsMessage<InputError>(
                  HasSubstr("products with a matrix " + name + " on far:0 depend on the number")));
  set_far_sum_order(nullptr);
  EXPECT_NO_THROW(Weight(far_, 72, 88, type()));
}

// One row more or less in the order is noticed in every kind of call.
TEST_P(FarProductsTest, EveryNumberOfRowsIsTried) {
  for (const int64_t wrong : {1, 2, 4, 504, 1024, 2048}) {
    set_far_sum_order([=](int64_t rows, int64_t) { return rows == wrong ? 3 : 0; });
    const at::Tensor matrix = far_.zeros({64, 48}, type());
    const std::optional<ProductPlan> plan =
        ops::find_plan(matrix.t(), ops::ProductKind::kForward, ops::row_counts(64));
    if (wrong < 16)
      EXPECT_EQ(plan, (ProductPlan{.least_rows = 16})) << wrong;
    else
      EXPECT_EQ(plan, std::nullopt) << wrong;
  }
}

TEST_P(FarProductsTest, MoreSlicesAreTried) {
  // Sums of more than 256 depend on the number of rows. No other test has a matrix of this shape,
  // whose plan would be known.
  set_far_sum_order([](int64_t rows, int64_t sum) { return sum > 256 ? rows : 0; });
  const Weight w = weight(52, 1024);
  EXPECT_EQ(ops::first_plan(1024, 52).slices, 2);
  EXPECT_EQ(w.plans().forward, ProductPlan{.slices = 4});
  expect_rows_of_their_own(w);
}

TEST_P(FarProductsTest, MorePaddingIsTried) {
  set_far_sum_order([](int64_t rows, int64_t) { return rows < 16 ? rows : 0; });
  const Weight w = weight(60, 64);
  EXPECT_EQ(w.plans().forward, ProductPlan{.least_rows = 16});
  EXPECT_EQ(w.plans().backward, ProductPlan{.least_rows = 16});
  expect_rows_of_their_own(w);
}

TEST_P(FarProductsTest, AWeightIsZerosAfterItsTrial) {
  EXPECT_EQ(Weight(far_, 24, 40, type()).storage().abs().max().item<float>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, FarProductsTest, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float32" : "bfloat16";
                         });

}  // namespace
}  // namespace tlt::tests
