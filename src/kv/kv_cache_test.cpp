// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::kv {
namespace {

constexpr int64_t kPages = 5;

class KvCacheTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  KvShape shape() const { return {.layers = 3, .kv_heads = 2, .head_size = 8, .type = GetParam()}; }
  KvCache make() const { return KvCache(Device::cpu(1), shape(), kPages); }
};

TEST_P(KvCacheTest, PageBytesTimesPagesAreTheStorage) {
  const KvCache cache = make();
  const at::Tensor& storage = cache.layer(0).storage;
  EXPECT_EQ(static_cast<int64_t>(storage.nbytes()), kPages * shape().page_bytes());
  EXPECT_EQ(cache.pages(), kPages);
  EXPECT_EQ(storage.scalar_type(), GetParam());
  EXPECT_TRUE(storage.device().is_cpu());
}

// The kernels read whole pages and mask by position; a NaN in uninitialized memory would spread.
TEST_P(KvCacheTest, StartsWithZeros) {
  EXPECT_EQ(make().layer(0).storage.ne(0).sum().item<int64_t>(), 0);
}

TEST_P(KvCacheTest, LayersAreViewsOfOneStorage) {
  const KvCache cache = make();
  EXPECT_EQ(cache.layer(0).storage.data_ptr(), cache.layer(2).storage.data_ptr());
  EXPECT_EQ(cache.layer(2).layer, 2);
  EXPECT_EQ(cache.layer(1).kv_heads(), 2);
  EXPECT_EQ(cache.layer(1).head_size(), 8);
}

TEST_P(KvCacheTest, CopyPageCopiesAllLayersOfThatPageOnly) {
  KvCache cache = make();
  const at::Tensor storage = cache.layer(0).storage;
  storage.copy_(at::arange(storage.numel(), at::kFloat).remainder(251).view(storage.sizes()));
  at::Tensor want = storage.clone();
  want[4].copy_(want[1]);
  ASSERT_FALSE(at::equal(want, storage));
  cache.copy_page(/*from=*/1, /*to=*/4);
  EXPECT_TRUE(at::equal(want, storage));
}

TEST_P(KvCacheTest, ShapeWithoutPagesOrHeadsThrows) {
  EXPECT_THROW(KvCache(Device::cpu(1), shape(), 0), Error);
  KvShape headless = shape();
  headless.kv_heads = 0;
  EXPECT_THROW(KvCache(Device::cpu(1), headless, kPages), Error);
}

// The memory of a large cache; its address stays, and its pages are zero as in the beginning.
TEST_P(KvCacheTest, ReleasedCacheIsTheOneOfTheBeginning) {
  const int64_t pages = (int64_t{40} << 20) / shape().page_bytes();
  KvCache cache(Device::cpu(1), shape(), pages);
  at::Tensor storage = cache.layer(0).storage;
  const void* const address = storage.data_ptr();
  storage.fill_(3);
  ASSERT_TRUE(cache.try_release());
  EXPECT_EQ(cache.layer(0).storage.data_ptr(), address);
  EXPECT_EQ(storage.ne(0).sum().item<int64_t>(), 0);
  storage.select(0, pages - 1).fill_(2);
  EXPECT_EQ(storage.ne(0).sum().item<int64_t>(), storage.numel() / pages);

  KvCache small = make();
  small.layer(0).storage.select(0, 0).fill_(1);
  EXPECT_FALSE(small.try_release());
  EXPECT_GT(small.layer(0).storage.ne(0).sum().item<int64_t>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, KvCacheTest, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float32" : "bfloat16";
                         });

}  // namespace
}  // namespace tlt::kv
