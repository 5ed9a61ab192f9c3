// Attention by a GPU's kernels, over emulated blocks, in the operations that call them: equal to
// the CPU's kernels up to rounding, in one launch or two, whatever the batch.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>

#include "ops/attention.h"
#include "ops/cuda/emulated_block.h"
#include "ops/cuda/kernels.h"
#include "ops/device_batch.h"
#include "tests/support/far_device.h"
#include "tests/support/tensors.h"

namespace tlt::tests {
namespace {

using ops::AttentionRows;
using ops::Batch;
using ops::PageId;

class FarAttentionTest
    : public ::testing::TestWithParam<std::tuple<ops::AttentionShape, at::ScalarType>> {
 protected:
  // What a device has: its cache, and the outputs of each batch.
  struct Side {
    Device device;
    ops::KvLayer cache = {};
    at::Tensor out = {}, lse = {};
    int64_t launches = 0;
  };

  FarAttentionTest() {
    for (Side* side : {&cpu_, &far_})
      side->cache = {at::zeros({48, 2, shape().kv_heads, 2, shape().head_size * 16},
                               at::TensorOptions(side->device.torch()).dtype(type())),
                     /*layer=*/1};
  }
  const ops::AttentionShape& shape() const { return std::get<0>(GetParam()); }
  at::ScalarType type() const { return std::get<1>(GetParam()); }

  // All angles are 0, so the rotation changes neither the queries nor the KV entries of the rows.
  void attend(Side& side, const Batch& batch, const at::Tensor& rows) const {
    const int64_t h = shape().head_size;
    const at::Tensor cos_sin = at::cat({at::ones({700, h / 2}), at::zeros({700, h / 2})}, 1);
    const at::Tensor angles = cos_sin.to(side.device.torch());
    side.cache.tree = side.device.zeros(
        {std::max<int64_t>(batch.tree_rows, 1), 2 * shape().kv_heads * h}, type());
    at::Tensor qkv = rows.to(side.device.torch(), rows.scalar_type(), /*non_blocking=*/false,
                             /*copy=*/true);
    side.out = side.device.empty({batch.rows(), shape().heads * h}, type());
    side.lse = side.device.empty({batch.rows(), shape().heads}, at::kFloat);
    std::optional<ops::DeviceBatch> on_device;
    if (!side.device.is_cpu()) on_device.emplace(batch, side.device.torch());
    const AttentionRows call{shape(), batch, side.cache, on_device ? &*on_device : nullptr};
    ops::rope_and_store(side.device, call, {.cos_sin = angles}, qkv);
    const FarCounts before = far_counts();
    ops::attention(side.device, call, qkv, {side.out, &side.lse});
    side.launches = far_counts().operations - before.operations;
  }

  void expect_equal(const Batch& batch, uint64_t seed) {
    const at::Tensor rows = random_tensor(
        {batch.rows(), (shape().heads + 2 * shape().kv_heads) * shape().head_size}, type(), seed);
    attend(cpu_, batch, rows);
    attend(far_, batch, rows);
    EXPECT_TRUE(tensors_near(far_.out.cpu(), cpu_.out, tolerance(type())));
    EXPECT_TRUE(tensors_near(far_.lse.cpu(), cpu_.lse, 1e-5));
    EXPECT_LE(far_.launches, 2);
  }

  Side cpu_{Device::cpu(1)}, far_{Device::parse("far", 1)};
};

// Prompts in two chunks, then a decode row, a tree and another prompt together; with one split and
// with two.
TEST_P(FarAttentionTest, EqualsTheCpusKernels) {
  const std::vector<int32_t> tokens(600, 0);
  std::vector<PageId> long_pages, pages = {40, 38, 39, 41}, other = {42, 43, 44};
  for (PageId i = 0; i < 34; ++i) long_pages.push_back(33 - i);
  Batch chunk;
  chunk.add(tokens.data(), 20, 0, pages.data());
  chunk.add(tokens.data(), 5, 0, long_pages.data());
  expect_equal(chunk, 1);
  chunk.clear();
  chunk.add(tokens.data(), 13, 20, pages.data());
  chunk.add(tokens.data(), 290, 5, long_pages.data());
  expect_equal(chunk, 2);
  Batch mixed;
  mixed.add(tokens.data(), 1, 295, long_pages.data());
  mixed.add_tree(0, 33, pages.data());
  for (const int32_t depth : {1, 2, 2, 1, 2, 3}) mixed.add_node(0, depth);
  mixed.add(tokens.data(), 17, 0, other.data());
  expect_equal(mixed, 3);
  Batch decode;
  decode.add(tokens.data(), 1, 296, long_pages.data());
  decode.add(tokens.data(), 1, 17, other.data());
  expect_equal(decode, 4);
}

// The gradient of a training batch.
class FarAttentionGradientTest : public FarAttentionTest {
 protected:
  struct Gradient {
    at::Tensor d_qkv, d_q_norm, d_k_norm;
  };

  FarAttentionGradientTest() {
    const int64_t h = shape().head_size;
    const at::Tensor angle = at::arange(100, at::kFloat).unsqueeze(1) *
                             at::pow(10.0, -at::arange(h / 2, at::kFloat) / double(h));
    cos_sin_ = at::cat({angle.cos(), angle.sin()}, 1);
    q_norm_ = random_tensor({h}, at::kFloat, 100);
    k_norm_ = random_tensor({h}, at::kFloat, 101);
  }

  Gradient gradient(Side& side, const Batch& batch, const at::Tensor& raw,
                    const at::Tensor& d_out) const {
    const auto here = [&](const at::Tensor& x) {
      return x.to(side.device.torch(), x.scalar_type(), /*non_blocking=*/false, /*copy=*/true)
          .contiguous();
    };
    const at::Tensor q_norm = here(q_norm_), k_norm = here(k_norm_), own_raw = here(raw),
                     own_d_out = here(d_out);
    const ops::RopeStore rope{
        .cos_sin = here(cos_sin_), .q_norm = &q_norm, .k_norm = &k_norm, .norm_epsilon = 1e-6};
    std::optional<ops::DeviceBatch> on_device;
    if (!side.device.is_cpu()) on_device.emplace(batch, side.device.torch());
    const AttentionRows call{shape(), batch, side.cache, on_device ? &*on_device : nullptr};
    at::Tensor qkv = here(raw), out = at::empty_like(own_d_out), d_qkv = at::empty_like(own_raw),
               lse = side.device.empty({batch.rows(), shape().heads}, at::kFloat),
               d_q_norm = side.device.zeros({shape().head_size}, at::kFloat),
               d_k_norm = side.device.zeros({shape().head_size}, at::kFloat);
    ops::rope_and_store(side.device, call, rope, qkv);
    ops::attention(side.device, call, qkv, {out, &lse});
    ops::attention_backward(side.device, call, rope,
                            {qkv, own_raw, out, lse, own_d_out, d_qkv, &d_q_norm, &d_k_norm});
    return {d_qkv.cpu(), d_q_norm.cpu(), d_k_norm.cpu()};
  }

  at::Tensor rows_of(const Batch& batch, int64_t heads, uint64_t seed) const {
    return random_tensor({batch.rows(), heads * shape().head_size}, type(), seed);
  }

  at::Tensor cos_sin_, q_norm_, k_norm_;
  const std::vector<PageId> first_ = {7, 3, 9, 0, 12}, second_ = {5}, prefix_ = {20, 21},
                            suffix_ = {20, 21, 22, 23}, other_ = {20, 21, 24};
};

// Two sequences alone, then a shared prefix and its suffixes.
TEST_P(FarAttentionGradientTest, IsTheCpus) {
  const std::vector<int32_t> tokens(80, 0);
  Batch batch;
  batch.add(tokens.data(), 70, 0, first_.data());
  batch.add(tokens.data(), 16, 0, second_.data());
  batch.add(tokens.data(), 32, 0, prefix_.data());
  batch.add_suffix(tokens.data(), 19, 2, suffix_.data());
  batch.add_suffix(tokens.data(), 3, 2, other_.data());
  const at::Tensor raw = rows_of(batch, shape().heads + 2 * shape().kv_heads, 1),
                   d_out = rows_of(batch, shape().heads, 2);
  const Gradient want = gradient(cpu_, batch, raw, d_out), got = gradient(far_, batch, raw, d_out);
  const bool is_float = type() == at::kFloat;
  EXPECT_TRUE(tensors_near(got.d_qkv, want.d_qkv, is_float ? 1e-4 : 5e-2));
  EXPECT_TRUE(tensors_near(got.d_q_norm, want.d_q_norm, is_float ? 1e-3 : 0.1));
  EXPECT_TRUE(tensors_near(got.d_k_norm, want.d_k_norm, is_float ? 1e-3 : 0.1));
}

TEST_P(FarAttentionGradientTest, DoesNotDependOnThreadsOrOtherSegments) {
  const std::vector<int32_t> tokens(80, 0);
  Batch alone, among;
  alone.add(tokens.data(), 70, 0, first_.data());
  among.add(tokens.data(), 13, 0, second_.data());
  among.add(tokens.data(), 70, 0, first_.data());
  among.add(tokens.data(), 32, 0, prefix_.data());
  among.add_suffix(tokens.data(), 19, 2, suffix_.data());
  const at::Tensor raw = rows_of(among, shape().heads + 2 * shape().kv_heads, 1),
                   d_out = rows_of(among, shape().heads, 2);
  const Gradient want = gradient(far_, among, raw, d_out);
  for (const ops::cuda::ThreadOrder order : ops::cuda::kThreadOrders) {
    ops::cuda::set_thread_order(order);
    EXPECT_TRUE(tensors_equal(gradient(far_, among, raw, d_out).d_qkv, want.d_qkv));
  }
  ops::cuda::set_thread_order(ops::cuda::ThreadOrder::kForward);
  const Gradient got = gradient(far_, alone, raw.narrow(0, 13, 70), d_out.narrow(0, 13, 70));
  EXPECT_TRUE(tensors_equal(got.d_qkv, want.d_qkv.narrow(0, 13, 70)));
}

const auto kShapes = ::testing::Combine(
    ::testing::Values(ops::AttentionShape{4, 2, 16}, ops::AttentionShape{3, 3, 32},
                      ops::AttentionShape{7, 1, 64}, ops::AttentionShape{8, 1, 128},
                      ops::AttentionShape{4, 2, 128}),
    ::testing::Values(at::kFloat, at::kBFloat16));

std::string name_of(const ::testing::TestParamInfo<FarAttentionTest::ParamType>& info) {
  const auto& [shape, type] = info.param;
  return std::to_string(shape.heads) + "_heads_" + std::to_string(shape.kv_heads) + "_kv_of_" +
         std::to_string(shape.head_size) + (type == at::kFloat ? "_float32" : "_bfloat16");
}

INSTANTIATE_TEST_SUITE_P(Shapes, FarAttentionTest, kShapes, name_of);
INSTANTIATE_TEST_SUITE_P(Shapes, FarAttentionGradientTest, kShapes, name_of);

// Attention of other head sizes is ATen's body.
TEST(FarAttentionShapeTest, FourHeadSizesHaveKernels) {
  const Device far = Device::parse("far", 1);
  const auto* kernels = ops::device_kernels(far.torch());
  ASSERT_TRUE(kernels);
  for (const int64_t size : {16, 32, 64, 128}) EXPECT_TRUE(kernels->attention.has_head_size(size));
  EXPECT_FALSE(kernels->attention.has_head_size(48));
  EXPECT_EQ(ops::device_kernels(at::Device(at::kCPU)), nullptr);
}

}  // namespace
}  // namespace tlt::tests
