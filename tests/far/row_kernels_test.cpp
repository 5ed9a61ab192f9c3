// The row-wise, sampling and summing kernels of a GPU (src/ops/cuda/rows.h, sampling.h, sums.h), run
// through the operations of the far device: what the CPU kernels compute, row by row whatever the
// batch, and the same bits in whatever order threads and blocks run.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "kv/kv_cache.h"
#include "ops/aten_bodies.h"
#include "ops/cuda/emulated_block.h"
#include "ops/device_batch.h"
#include "ops/device_rows.h"
#include "tests/support/far_device.h"
#include "tests/support/tensors.h"

namespace tlt::tests {
namespace {

using ops::cuda::kThreadOrders;

// Of bfloat16: a result that another order of a float32 sum moved over a rounding boundary differs by
// one unit in the last of 8 bits.
double rounding(at::ScalarType type) { return type == at::kBFloat16 ? 0x1p-7 : 1e-6; }

class FarRowKernelsTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  using Result = std::vector<at::Tensor>;
  using Compute = std::function<Result(const Device&)>;

  ~FarRowKernelsTest() override { ops::cuda::set_thread_order(kThreadOrders[0]); }

  at::ScalarType type() const { return GetParam(); }
  static at::Tensor on(const Device& device, const at::Tensor& tensor) {
    return tensor.to(device.torch(), /*non_blocking=*/false, /*copy=*/true);
  }

  Result on_far(const Compute& compute) const {
    Result result = compute(far_);
    for (at::Tensor& tensor : result) tensor = tensor.cpu();
    return result;
  }

  // The CPU's results up to `tolerance`, and the same bits in all orders of threads. From
  // `first_sum` on they are sums of many rows, whose error is relative to the largest.
  void expect_cpus(const Compute& compute, double tolerance, size_t first_sum = SIZE_MAX) const {
    const Result want = compute(cpu_), got = on_far(compute);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(i < first_sum ? tensors_near(got[i], want[i], tolerance)
                                : near_of_largest(got[i], want[i], 1e-6))
          << "result " << i;
    for (const auto order : kThreadOrders) {
      ops::cuda::set_thread_order(order);
      const Result again = on_far(compute);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(at::equal(again[i], got[i])) << "result " << i << " in another order";
    }
    ops::cuda::set_thread_order(kThreadOrders[0]);
  }

  const Device cpu_ = Device::cpu(1), far_ = Device::parse("far", 1);
};

constexpr int64_t kRowCounts[] = {1, 3, 65};
constexpr int64_t kColumnCounts[] = {16, 48, 1552};

TEST_P(FarRowKernelsTest, NormAndItsGradientAreTheCpus) {
  for (const int64_t rows : kRowCounts)
    for (const int64_t columns : kColumnCounts) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
      const at::Tensor x = random_tensor({rows, columns}, type(), 1, 3),
                       dy = random_tensor({rows, columns}, type(), 2),
                       given = random_tensor({rows, columns}, type(), 3),
                       weight = random_tensor({columns}, at::kFloat, 4);
      const auto compute = [&](const Device& device) -> Result {
        const at::Tensor w = on(device, weight), far_x = on(device, x), far_dy = on(device, dy);
        at::Tensor out = device.empty({rows, columns}, type()), dx = on(device, given),
                   dweight = device.zeros({columns}, at::kFloat), none;
        ops::rms_norm(device, far_x, w, 1e-5, out);
        ops::rms_norm_backward(device, {far_dy, far_x, w, 1e-5, dx, dweight});
        return {out, dx, dweight};
      };
      expect_cpus(compute, rounding(type()), /*first_sum=*/2);
    }
}

TEST_P(FarRowKernelsTest, SwigluAndItsGradientAreTheCpus) {
  for (const int64_t rows : kRowCounts)
    for (const int64_t columns : kColumnCounts) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
      const at::Tensor gate_up = random_tensor({rows, 2 * columns}, type(), 1, 5),
                       d_out = random_tensor({rows, columns}, type(), 2);
      const auto compute = [&](const Device& device) -> Result {
        at::Tensor out = device.empty({rows, columns}, type()),
                   d = device.empty({rows, 2 * columns}, type());
        ops::swiglu(device, on(device, gate_up), out);
        ops::swiglu_backward(device, on(device, d_out), on(device, gate_up), d);
        return {out, d};
      };
      expect_cpus(compute, rounding(type()));
    }
}

TEST_P(FarRowKernelsTest, RowsDoNotDependOnTheirBatch) {
  const int64_t rows = 9, columns = 48;
  const at::Tensor x = on(far_, random_tensor({rows, 2 * columns}, type(), 1, 3)),
                   weight = on(far_, random_tensor({2 * columns}, at::kFloat, 2));
  at::Tensor normed = at::empty_like(x), gated = far_.empty({rows, columns}, type());
  ops::rms_norm(far_, x, weight, 1e-6, normed);
  ops::swiglu(far_, x, gated);
  for (int64_t row = 0; row < rows; ++row) {
    at::Tensor one = far_.empty({1, 2 * columns}, type()), half = far_.empty({1, columns}, type());
    ops::rms_norm(far_, x.narrow(0, row, 1), weight, 1e-6, one);
    ops::swiglu(far_, x.narrow(0, row, 1), half);
    EXPECT_TRUE(tensors_equal(one, normed.narrow(0, row, 1))) << "row " << row;
    EXPECT_TRUE(tensors_equal(half, gated.narrow(0, row, 1))) << "row " << row;
  }
}

// More rows than one launch lists.
TEST_P(FarRowKernelsTest, GatheredRowsAndGradientsOfEmbeddingsAreTheCpusBits) {
  const int64_t vocabulary = 50, columns = 32, count = 600;
  const at::Tensor table = random_tensor({vocabulary, columns}, type(), 1),
                   dx = random_tensor({count, columns}, type(), 2),
                   given = random_tensor({vocabulary, columns}, at::kFloat, 3);
  RandomStream random(/*seed=*/1, {});
  std::vector<int64_t> rows;
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(random.below(vocabulary - 3)));
    rows.push_back(tokens.back());
  }
  const auto compute = [&](const Device& device) -> Result {
    at::Tensor out = device.empty({count, columns}, type()), dtable = on(device, given);
    ops::gather_rows(device, on(device, table), rows, out);
    ops::embed_backward(device, on(device, dx), tokens, dtable);
    return {out, dtable};
  };
  expect_cpus(compute, 0);
}

// --- KV cache ---

struct HeadSizes {
  int64_t heads, kv_heads, head_size;
  bool normed;
};

at::Tensor angles_of(int64_t positions, int64_t head_size) {
  const at::Tensor angle = at::arange(positions, at::kFloat).unsqueeze(1) /
                           at::arange(1, head_size / 2 + 1, at::kFloat).unsqueeze(0);
  return at::cat({angle.cos(), angle.sin()}, 1);
}

// A prompt's chunk, a decode row and a tree.
ops::Batch mixed_batch(const std::vector<ops::PageId>& pages) {
  ops::Batch batch;
  const std::vector<int32_t> tokens(40, 0);
  batch.add(tokens.data(), 21, 16, &pages[0]);
  batch.add(tokens.data(), 1, 33, &pages[4]);
  batch.add_tree(0, 15, &pages[8]);
  for (const int32_t depth : {1, 2, 2, 1}) batch.add_node(0, depth);
  return batch;
}

const std::vector<ops::PageId> kPages = {7, 3, 9, 0, 12, 5, 8, 1, 2, 14, 4, 6};

// k and v of qkv, in the slots and tree rows of the batch's rows.
void expect_stored(const ops::AttentionShape& shape, const ops::Batch& batch,
                   const std::vector<at::Tensor>& qkv_storage_tree) {
  const auto& [n, k, h] = shape;
  const at::Tensor &qkv = qkv_storage_tree[0], &tree = qkv_storage_tree[2];
  const at::Tensor layers =
      qkv_storage_tree[1].view({-1, 2, k, 2, ops::kPageSlots, h});  // [P, L, K, 2, 16, H]
  EXPECT_EQ(layers.select(1, 0).count_nonzero().item<int64_t>(), 0) << "another layer";
  for (const ops::Segment& segment : batch.segments)
    for (int32_t i = 0; i < segment.rows; ++i) {
      const int32_t position = segment.first_position + i;
      const at::Tensor want = qkv[segment.first_row + i].narrow(0, n * h, 2 * k * h);
      const at::Tensor got = segment.is_tree()
                                 ? tree[segment.first_tree_row + i]
                                 : layers.select(1, 1)[segment.pages[position / ops::kPageSlots]]
                                       .select(2, position % ops::kPageSlots)
                                       .transpose(0, 1)
                                       .reshape({-1});
      EXPECT_TRUE(at::equal(got, want)) << "row " << segment.first_row + i;
    }
  EXPECT_EQ(layers.select(1, 1).ne(0).any(-1).sum().item<int64_t>(),
            2 * k * (batch.rows() - batch.tree_rows))
      << "slots that were written";
}

TEST_P(FarRowKernelsTest, RotatedHeadsAreTheCpusAndStored) {
  const int64_t layer = 1;
  for (const auto& [n, k, h, normed] : {HeadSizes{4, 2, 16, false}, HeadSizes{6, 1, 64, true},
                                        HeadSizes{2, 2, 128, true}, HeadSizes{3, 3, 80, false}}) {
    SCOPED_TRACE(std::to_string(n) + " heads of " + std::to_string(h));
    const ops::Batch batch = mixed_batch(kPages);
    const int64_t rows = batch.rows(), width = (n + 2 * k) * h;
    const at::Tensor raw = random_tensor({rows, width}, type(), 1),
                     q_norm = random_tensor({h}, at::kFloat, 2),
                     k_norm = random_tensor({h}, at::kFloat, 3);
    const bool has_norm = normed;
    const ops::AttentionShape shape{n, k, h};
    const auto compute = [&](const Device& device) -> Result {
      const int64_t kv = shape.kv_heads, size = shape.head_size;
      const ops::KvLayer cache{device.zeros({16, 2, kv, 2, size * ops::kPageSlots}, type()), layer,
                               device.zeros({batch.tree_rows, 2 * kv * size}, type())};
      const ops::DeviceBatch on_device(batch, device.torch());
      const at::Tensor q_weight = on(device, q_norm), k_weight = on(device, k_norm);
      const ops::RopeStore rope{on(device, angles_of(60, shape.head_size)),
                                has_norm ? &q_weight : nullptr, has_norm ? &k_weight : nullptr};
      at::Tensor qkv = on(device, raw);
      ops::rope_and_store(device, {shape, batch, cache, &on_device}, rope, qkv);
      return device.is_cpu() ? Result{qkv} : Result{qkv, cache.storage, cache.tree};
    };
    const Result want = compute(cpu_), got = on_far(compute);
    EXPECT_TRUE(
        tensors_near(got[0], want[0], normed || type() == at::kBFloat16 ? rounding(type()) : 0));
    expect_stored(shape, batch, got);
    for (const auto order : kThreadOrders) {
      ops::cuda::set_thread_order(order);
      const Result again = on_far(compute);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(again[i], got[i]));
    }
  }
}

TEST_P(FarRowKernelsTest, GradientsOfRotationAndNormsAreAtens) {
  for (const auto& [n, k, h, normed] : {HeadSizes{4, 2, 16, false}, HeadSizes{6, 1, 64, true},
                                        HeadSizes{2, 2, 128, true}, HeadSizes{3, 3, 80, true}}) {
    SCOPED_TRACE(std::to_string(n) + " heads of " + std::to_string(h));
    const ops::Batch batch = mixed_batch(kPages);
    const int64_t rows = batch.rows(), width = (n + 2 * k) * h;
    const at::Tensor raw = random_tensor({rows, width}, type(), 1, 2),
                     d_q = random_tensor({rows, n, h}, at::kFloat, 2),
                     d_k = random_tensor({rows, k, h}, at::kFloat, 3),
                     d_v = random_tensor({rows, k, h}, at::kFloat, 4),
                     q_norm = random_tensor({h}, at::kFloat, 5),
                     k_norm = random_tensor({h}, at::kFloat, 6);
    const bool has_norm = normed;
    const ops::AttentionShape shape{n, k, h};
    const auto compute = [&](const Device& device) -> Result {
      const ops::DeviceBatch on_device(batch, device.torch());
      const at::Tensor q_weight = on(device, q_norm), k_weight = on(device, k_norm), none,
                       own_raw = on(device, raw);
      const ops::RopeStore rope{on(device, angles_of(60, shape.head_size)),
                                has_norm ? &q_weight : nullptr, has_norm ? &k_weight : nullptr};
      at::Tensor d_qkv = device.empty({rows, width}, type()),
                 d_q_norm = device.zeros({shape.head_size}, at::kFloat),
                 d_k_norm = device.zeros({shape.head_size}, at::kFloat);
      const ops::aten::RotatedGradient d{on(device, d_q), on(device, d_k), on(device, d_v)};
      const ops::AttentionGradient gradient{.qkv = none,
                                            .raw_qkv = own_raw,
                                            .out = none,
                                            .lse = none,
                                            .d_out = none,
                                            .d_qkv = d_qkv,
                                            .d_q_norm = has_norm ? &d_q_norm : nullptr,
                                            .d_k_norm = has_norm ? &d_k_norm : nullptr};
      if (const ops::DeviceRows* own = ops::device_rows(device))
        own->rope_backward({shape, on_device, rope}, d, gradient);
      else
        ops::aten::rope_backward(shape, rope, rope.cos_sin.index_select(0, on_device.positions()),
                                 d, gradient);
      return has_norm ? Result{d_qkv, d_q_norm, d_k_norm} : Result{d_qkv};
    };
    expect_cpus(compute, rounding(type()), /*first_sum=*/type() == at::kFloat ? 0 : 1);
  }
}

// More entries than one launch lists.
TEST_P(FarRowKernelsTest, PathsAreKeptInAllLayers) {
  const int64_t layers = 3, k = 2, h = 16, trees = 130;
  ops::Batch batch;
  std::vector<ops::PageId> pages;
  for (int64_t i = 0; i < 2 * trees; ++i) pages.push_back(static_cast<ops::PageId>(i * 7 % 260));
  for (int64_t i = 0; i < trees; ++i) {
    batch.add_tree(0, 14, &pages[static_cast<size_t>(2 * i)]);
    for (const int32_t depth : {1, 2, 2, 1}) batch.add_node(0, depth);
  }
  const std::vector<int32_t> path = {0, 1, 3};
  std::vector<ops::KeptPath> paths;
  for (const ops::Segment& segment : batch.segments) paths.push_back({&segment, path});
  const at::Tensor storage = far_.zeros({2 * trees, layers, k, 2, h * ops::kPageSlots}, type()),
                   tree = random_tensor({layers, batch.tree_rows, 2 * k * h}, type(), 1);
  const at::Tensor far_tree = on(far_, tree);
  const FarCounts before = far_counts();
  ops::keep_paths(far_, {storage, far_tree}, batch, paths);
  EXPECT_EQ(far_counts().operations - before.operations, 2) << "390 entries";
  EXPECT_EQ(far_counts().uploads, before.uploads);
  const at::Tensor got = storage.cpu().view({-1, layers, k, 2, ops::kPageSlots, h});
  for (const ops::Segment& segment : batch.segments)
    for (int32_t i = 0; i < 3; ++i) {
      const int32_t position = segment.first_position + i;
      const at::Tensor entry =
          got[segment.pages[position / ops::kPageSlots]].select(3, position % ops::kPageSlots);
      EXPECT_TRUE(at::equal(entry.transpose(1, 2).reshape({layers, -1}),
                            tree.select(1, segment.first_tree_row + path[static_cast<size_t>(i)])));
    }
  EXPECT_EQ(got.ne(0).any(-1).sum().item<int64_t>(), trees * 3 * layers * 2 * k);
}

// Copies of which one needs another's result: as one after the other.
TEST_P(FarRowKernelsTest, PagesAreCopiedInOrder) {
  const int64_t pages = 300;
  const at::Tensor storage = random_tensor({pages, 2, 1, 2, 16 * ops::kPageSlots}, type(), 1);
  RandomStream random(/*seed=*/2, {});
  std::vector<ops::PageCopy> copies = {{1, 2}, {2, 3}, {3, 3}, {4, 2}, {5, 1}};
  for (int i = 0; i < 400; ++i)
    copies.push_back({static_cast<ops::PageId>(random.below(pages)),
                      static_cast<ops::PageId>(random.below(pages))});
  at::Tensor want = storage.clone();
  ops::copy_pages(cpu_, want, copies);
  for (const auto order : kThreadOrders) {
    ops::cuda::set_thread_order(order);
    const at::Tensor got = on(far_, storage);
    ops::copy_pages(far_, got, copies);
    EXPECT_TRUE(at::equal(got.cpu(), want));
  }
}

// --- sums ---

TEST_P(FarRowKernelsTest, ColumnSumsAreTheCpusUpToRounding) {
  const int64_t columns = 200;
  for (const int64_t rows : {1, 64, 65, 300}) {
    const at::Tensor x = random_tensor({rows, columns}, type(), 1);
    at::Tensor sum = far_.zeros({columns}, at::kFloat);
    ops::device_rows(far_)->add_columns(on(far_, x), sum);
    EXPECT_TRUE(near_of_largest(sum.cpu(), x.to(at::kDouble).sum(0), 1e-6)) << rows << " rows";
  }
}

// The arithmetic of train/gradient_sum.cpp.
TEST_P(FarRowKernelsTest, GradientsAreAddedInFixedPoint) {
  constexpr int64_t kLimit = int64_t{1} << 22, kInvalid = int64_t{1} << 42;
  const int64_t count = 40000;
  at::Tensor x = random_tensor({count}, at::kFloat, 1, 50), want = at::zeros({count}, at::kLong);
  x[7] = 3e6, x[8] = -1e-13, x[9] = 0x1p-41, x[10] = 0x1.8p-40;
  const at::Tensor sums = far_.zeros({count}, at::kLong), magnitude = far_.zeros({1}, at::kLong);
  const auto add = [&](const at::Tensor& values) {
    ops::device_rows(far_)->add_fixed_point(on(far_, values), {kLimit, kInvalid}, magnitude, sums);
  };
  add(x);
  for (int64_t i = 0; i < count; ++i)
    want.data_ptr<int64_t>()[i] +=
        std::llrint(static_cast<double>(x.data_ptr<float>()[i]) * 0x1p40);
  EXPECT_TRUE(at::equal(sums.cpu(), want));
  EXPECT_EQ(magnitude.cpu().item<int64_t>(), 3000000);
  for (const float bad : {NAN, INFINITY, 5e6f}) {
    at::Tensor broken = x.clone();
    broken[12345] = bad;
    magnitude.zero_();
    add(broken);
    EXPECT_EQ(magnitude.cpu().item<int64_t>(), kInvalid) << bad;
    EXPECT_TRUE(at::equal(sums.cpu(), want)) << "an invalid gradient is not added";
  }
}

// One rounding, in the order of the slices.
TEST_P(FarRowKernelsTest, SlicesOfAProductAreAddedInOrder) {
  const int64_t slices = 4, rows = 5, padded = 8, columns = 70;
  const at::Tensor parts = random_tensor({slices, padded, columns}, at::kFloat, 1),
                   bias = random_tensor({columns}, at::kFloat, 2),
                   residual = random_tensor({rows, columns}, type(), 3);
  const at::Tensor far_parts = on(far_, parts), far_bias = on(far_, bias),
                   far_residual = on(far_, residual);
  for (const bool has_extras : {false, true}) {
    at::Tensor out = far_.empty({rows, columns}, type());
    const ops::LinearExtras extras =
        has_extras ? ops::LinearExtras{&far_bias, &far_residual} : ops::LinearExtras{};
    ops::device_rows(far_)->sum_slices(far_parts, extras, out);
    at::Tensor want = parts[0].narrow(0, 0, rows);
    for (int64_t i = 1; i < slices; ++i) want = want + parts[i].narrow(0, 0, rows);
    if (has_extras) want = want + bias + residual;
    EXPECT_TRUE(tensors_equal(out, want.to(type())));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, FarRowKernelsTest, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float32" : "bfloat16";
                         });

}  // namespace
}  // namespace tlt::tests
