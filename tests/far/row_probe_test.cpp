// The batch invariance checks of tlt doctor --device, on a device whose library chooses its kernel by
// the sizes of a call.
//
// SPDX-License-Identifier: Apache-2.0
#include "apps/row_probe.h"

#include <gmock/gmock.h>

#include "base/check.h"
#include "tests/support/far_device.h"

namespace tlt::tests {
namespace {

using ::testing::HasSubstr;

class FarRowProbeTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  ~FarRowProbeTest() override { set_far_sum_order(nullptr); }

  static std::string type_name() { return GetParam() == at::kFloat ? "float32" : "bfloat16"; }

  const Device far_ = Device::parse("far", 1);
};

TEST_P(FarRowProbeTest, RowsDoNotDependOnTheBatch) {
  EXPECT_EQ(apps::first_row_difference(far_, GetParam()), "");
}

TEST_P(FarRowProbeTest, EachWeightOfAModelIsTried) {
  const simulate::ModelShape shape{.name = "small",
                                   .layers = 1,
                                   .hidden = 1024,
                                   .intermediate = 76,
                                   .query_heads = 4,
                                   .kv_heads = 1,
                                   .head_size = 10,
                                   .vocabulary = 78};
  // Only the head has sums of 78, in its backward product.
  set_far_sum_order([](int64_t rows, int64_t sum) { return sum == 78 ? rows : 0; });
  const std::vector<apps::TriedMatrix> tried = apps::try_products(far_, GetParam(), shape);
  ASSERT_EQ(tried.size(), 5U);
  EXPECT_EQ(tried[0].name, "qkv [60, 1024] " + type_name());
  EXPECT_EQ(tried[0].text, "rows keep their bits: forward in 2 slices; backward");
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(tried[i].is_good) << tried[i].text;
  EXPECT_FALSE(tried[4].is_good);
  EXPECT_THAT(tried[4].text, HasSubstr("[78, 1024] " + type_name()));
}

INSTANTIATE_TEST_SUITE_P(Types, FarRowProbeTest, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float32" : "bfloat16";
                         });

}  // namespace
}  // namespace tlt::tests
