// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include "ops/aten_bodies.h"
#include "ops/cpu/bridge.h"
#include "tests/support/tensors.h"

namespace tlt::ops {
namespace {

using tests::random_tensor;
using tests::tensors_equal;
using tests::tensors_near;

struct Sizes {
  int64_t heads, kv_heads, head_size;
  bool normed;
};

at::Tensor angles(int64_t positions, int64_t head_size) {
  const at::Tensor angle =
      at::arange(positions, at::kFloat).unsqueeze(1) /
      at::pow(at::scalar_tensor(100.0),
              at::arange(head_size / 2, at::kFloat).unsqueeze(0) / double(head_size / 2));
  return at::cat({angle.cos(), angle.sin()}, 1);
}

class AttentionTest : public ::testing::TestWithParam<std::tuple<Sizes, at::ScalarType>> {
 protected:
  AttentionTest() {
    const auto& [n, k, h, normed] = sizes();
    shape_ = {n, k, h};
    width_ = (n + 2 * k) * h;
    cache_ = {at::zeros({40, 2, k, 2, h * kPageSlots}, type()), /*layer=*/1};
    rope_.cos_sin = angles(200, h);
    if (normed) rope_.q_norm = &q_norm_, rope_.k_norm = &k_norm_;
    q_norm_ = random_tensor({h}, at::kFloat, 100);
    k_norm_ = random_tensor({h}, at::kFloat, 101);
  }
  const Sizes& sizes() const { return std::get<0>(GetParam()); }
  at::ScalarType type() const { return std::get<1>(GetParam()); }
  AttentionRows rows_of(const Batch& batch) const { return {shape_, batch, cache_}; }

  Device device_ = Device::cpu(2);
  AttentionShape shape_;
  int64_t width_ = 0;
  KvLayer cache_;
  RopeStore rope_;
  at::Tensor q_norm_, k_norm_;
  // Pages of two sequences, interleaved and out of order.
  std::vector<PageId> first_pages_ = {7, 3, 9, 0, 12}, second_pages_ = {5, 8, 1, 2, 30};
};

Batch batch_of(const std::vector<PageId>& first, int32_t rows, const std::vector<PageId>& second,
               int32_t more) {
  Batch batch;
  std::vector<int32_t> tokens(200, 0);
  batch.add(tokens.data(), rows, 0, first.data());
  batch.add(tokens.data(), more, 0, second.data());
  return batch;
}

TEST_P(AttentionTest, AgreesWithAten) {
  const Batch batch = batch_of(first_pages_, 37, second_pages_, 16);
  const at::Tensor raw = random_tensor({53, width_}, type(), 1);
  at::Tensor got_qkv = raw.clone(), want_qkv = raw.clone();
  rope_and_store(device_, rows_of(batch), rope_, got_qkv);
  const at::Tensor stored = cache_.storage.clone();
  aten::rope_and_store(rows_of(batch), rope_, want_qkv);
  EXPECT_TRUE(tensors_near(got_qkv, want_qkv, tests::tolerance(type())));
  EXPECT_TRUE(tensors_near(stored, cache_.storage, tests::tolerance(type())));

  const int64_t out_width = shape_.heads * shape_.head_size;
  at::Tensor got = at::empty({53, out_width}, type()), want = at::empty({53, out_width}, type());
  at::Tensor got_lse = at::empty({53, shape_.heads}, at::kFloat),
             want_lse = at::empty_like(got_lse);
  attention(device_, rows_of(batch), want_qkv, {got, &got_lse});
  aten::attention(rows_of(batch), want_qkv, {want, &want_lse});
  EXPECT_TRUE(tensors_near(got, want, tests::tolerance(type())));
  EXPECT_TRUE(tensors_near(got_lse, want_lse, 1e-4));
}

// The running maximum is updated only by scores far above it: by none of a page, one or all.
TEST_P(AttentionTest, ScoresThatRiseFromPageToPageAgreeWithAten) {
  const int64_t heads = shape_.heads * shape_.head_size;
  rope_.cos_sin = at::cat({at::ones({200, shape_.head_size / 2}, at::kFloat),
                           at::zeros({200, shape_.head_size / 2}, at::kFloat)},
                          1);
  rope_.q_norm = rope_.k_norm = nullptr;
  std::vector<int32_t> tokens(72, 0);
  Batch batch;
  batch.add(tokens.data(), 72, 0, first_pages_.data());
  for (const double rise : {0.1, 0.5, 0.7, 1.2, -1.2}) {
    at::Tensor qkv = random_tensor({72, width_}, type(), 1);
    // One product per score, so that only the sums of weights and values are rounded.
    const auto head_of = [&](int64_t head) {
      return qkv.narrow(1, head * shape_.head_size, shape_.head_size);
    };
    for (int64_t head = 0; head < shape_.heads + shape_.kv_heads; ++head) {
      head_of(head).zero_();
      head_of(head).select(1, 0).copy_(head < shape_.heads
                                           ? at::ones({72})
                                           : at::arange(72, at::kFloat) * rise *
                                                 std::sqrt(static_cast<double>(shape_.head_size)));
    }
    rope_and_store(device_, rows_of(batch), rope_, qkv);
    at::Tensor got = at::empty({72, heads}, type()), want = at::empty_like(got);
    at::Tensor got_lse = at::empty({72, shape_.heads}, at::kFloat),
               want_lse = at::empty_like(got_lse);
    attention(device_, rows_of(batch), qkv, {got, &got_lse});
    aten::attention(rows_of(batch), qkv, {want, &want_lse});
    EXPECT_TRUE(tensors_near(got, want, tests::tolerance(type()))) << "rise " << rise;
    EXPECT_TRUE(tensors_near(got_lse, want_lse, 1e-4)) << "rise " << rise;
  }
}

TEST_P(AttentionTest, RowDoesNotDependOnChunksPagesOrOtherRows) {
  const at::Tensor raw = random_tensor({37, width_}, type(), 1);
  const int64_t out_width = shape_.heads * shape_.head_size;
  std::vector<int32_t> tokens(37, 0);
  Batch whole;
  whole.add(tokens.data(), 37, 0, first_pages_.data());
  at::Tensor qkv = raw.clone(), want = at::empty({37, out_width}, type());
  rope_and_store(device_, rows_of(whole), rope_, qkv);
  attention(device_, rows_of(whole), qkv, {want});
  for (const int32_t chunk : {1, 3, 16, 20}) {
    cache_.storage.zero_();
    at::Tensor got = at::empty({37, out_width}, type());
    for (int32_t first = 0; first < 37; first += chunk) {
      const int32_t rows = std::min(chunk, 37 - first);
      Batch part;
      part.add(tokens.data(), rows, first, second_pages_.data());
      at::Tensor some = raw.narrow(0, first, rows).clone(),
                 out = at::empty({rows, out_width}, type());
      rope_and_store(device_, rows_of(part), rope_, some);
      attention(device_, rows_of(part), some, {out});
      got.narrow(0, first, rows).copy_(out);
    }
    EXPECT_TRUE(tensors_equal(got, want)) << "chunks of " << chunk;
  }
}

// Two prompts, a decode row and a tree; with several pieces of a segment, and without.
TEST_P(AttentionTest, FusedEqualsRopeAndStoreThenAttention) {
  const int64_t out_width = shape_.heads * shape_.head_size;
  const std::vector<int32_t> tokens(60, 0);
  for (const int32_t rows : {5, 16, 17, 37}) {
    Batch batch;
    batch.add(tokens.data(), rows, /*first_position=*/3, first_pages_.data());
    batch.add(tokens.data(), 1, 20, second_pages_.data());
    const std::vector<PageId> tree_pages = {20, 21, 22};
    batch.add_tree(0, 30, tree_pages.data());
    for (const int32_t depth : {1, 2, 2, 1, 2, 3}) batch.add_node(0, depth);
    cache_.tree = at::zeros({batch.tree_rows, 2 * shape_.kv_heads * shape_.head_size}, type());
    const at::Tensor raw = random_tensor({batch.rows(), width_}, type(), 1),
                     storage = random_tensor(cache_.storage.sizes(), type(), 2);
    at::Tensor qkv[2], out[2], lse[2], slots[2];
    for (const int steps : {2, 1}) {
      const auto i = static_cast<size_t>(steps - 1);
      qkv[i] = raw.clone();
      out[i] = at::empty({batch.rows(), out_width}, type());
      lse[i] = at::empty({batch.rows(), shape_.heads}, at::kFloat);
      cache_.storage.copy_(storage);
      if (steps == 1) {
        rope_and_attention(device_, rows_of(batch), rope_, qkv[i], {out[i], &lse[i]});
      } else {
        rope_and_store(device_, rows_of(batch), rope_, qkv[i]);
        attention(device_, rows_of(batch), qkv[i], {out[i], &lse[i]});
      }
      slots[i] = cache_.storage.clone();
    }
    EXPECT_TRUE(tensors_equal(qkv[0], qkv[1])) << rows << " rows";
    EXPECT_TRUE(tensors_equal(out[0], out[1])) << rows << " rows";
    EXPECT_TRUE(tensors_equal(lse[0], lse[1])) << rows << " rows";
    EXPECT_TRUE(tensors_equal(slots[0], slots[1])) << rows << " rows";
  }
}

// Threads that start a suffix before its shared prefix is stored would read stale keys.
TEST_P(AttentionTest, SuffixWaitsForItsSharedPrefix) {
  const std::vector<int32_t> tokens(16, 0);
  Batch batch;
  batch.add(tokens.data(), 16, 0, first_pages_.data());
  batch.add_suffix(tokens.data(), 1, 0, first_pages_.data());
  const at::Tensor raw = random_tensor({17, width_}, type(), 1);
  for (int round = 0; round < 50; ++round) {
    cache_.storage.zero_();
    at::Tensor qkv = raw.clone(), out = at::empty({17, shape_.heads * shape_.head_size}, type());
    rope_and_attention(device_, rows_of(batch), rope_, qkv, {out});
    at::Tensor steps = raw.clone(), apart = at::empty_like(out);
    rope_and_store(device_, rows_of(batch), rope_, steps);
    attention(device_, rows_of(batch), steps, {apart});
    ASSERT_TRUE(tensors_equal(out, apart)) << "round " << round;
  }
}

// Every instruction set's kernel, whichever this machine would select: all rows of a tree at once,
// and each row alone with only its path in the cache.
TEST_P(AttentionTest, TreeRowEqualsLastTokenOfItsPath) {
  const auto& [n, k, h, normed] = sizes();
  const int32_t rows = 45;
  RandomStream random(/*seed=*/3, {});
  for (const char* isa : {"avx512bf16", "avx512", "avx2"}) {
    const Kernels* kernels = cpu_kernels(isa);
    if (!kernels) continue;
    for (const int32_t context : {0, 1, 14, 15, 16, 31, 50}) {
      Batch batch;
      batch.add_tree(0, context, first_pages_.data());
      std::vector<std::vector<int32_t>> paths = {{0}};  // of each row, the root first
      for (int32_t row = 1, depth = 0; row < rows; ++row) {
        depth =
            1 + static_cast<int32_t>(random.below(static_cast<uint64_t>(std::min(depth + 1, 20))));
        if (random.below(2) == 0) depth = static_cast<int32_t>(paths.back().size());
        depth = std::min(depth, 20);
        batch.add_node(0, depth);
        paths.emplace_back(paths.back().begin(), paths.back().begin() + depth);
        paths.back().push_back(row);
      }
      const at::Tensor qkv = random_tensor({rows, width_}, type(), 1),
                       keys_values = qkv.narrow(1, n * h, 2 * k * h).contiguous(),
                       storage = random_tensor(cache_.storage.sizes(), type(), 2);
      const auto pages_of = [&](const at::Tensor& x) {
        return KvPages{x.data_ptr(), x.stride(0), cache_.layer * x.stride(1), x.stride(2)};
      };
      const auto task_of = [&](int32_t row, at::Tensor& out, at::Tensor& lse) {
        return AttentionTask{.heads = n,
                             .kv_heads = k,
                             .head_size = h,
                             .pages = first_pages_.data(),
                             .first_position = batch.positions[static_cast<size_t>(row)],
                             .rows = 1,
                             .qkv = row_pointer(qkv, row),
                             .out = row_pointer(out, row),
                             .lse = lse.data_ptr<float>() + row * n,
                             .next = {}};
      };
      at::Tensor got = at::empty({rows, n * h}, type()), want = at::empty_like(got);
      at::Tensor got_lse = at::empty({rows, n}, at::kFloat), want_lse = at::empty_like(got_lse);
      for (int64_t head = 0; head < k; ++head) {
        at::Tensor slots = storage.clone();
        AttentionTask tree = task_of(0, got, got_lse);
        tree.rows = rows;
        tree.kv_head = head;
        tree.tree = keys_values.data_ptr();
        tree.tree_positions = batch.positions.data();
        kernels->attention(kernel_type(qkv), tree, pages_of(slots));
        for (int32_t row = 0; row < rows; ++row) {
          at::Tensor alone = storage.clone();
          for (const int32_t node : paths[static_cast<size_t>(row)])
            kernels->store_rows(kernel_type(qkv),
                                {.kv_heads = k,
                                 .head_size = h,
                                 .data = row_pointer(keys_values, node),
                                 .positions = &batch.positions[static_cast<size_t>(node)],
                                 .rows = 1,
                                 .pages = first_pages_.data()},
                                pages_of(alone));
          AttentionTask one = task_of(row, want, want_lse);
          one.kv_head = head;
          kernels->attention(kernel_type(qkv), one, pages_of(alone));
        }
      }
      EXPECT_TRUE(tensors_equal(got, want)) << isa << ", root at " << context;
      EXPECT_TRUE(tensors_equal(got_lse, want_lse)) << isa << ", root at " << context;
    }
  }
}

// Two sequences alone, then a shared prefix and its suffixes.
Batch batch_with_shared_prefix(const std::vector<PageId>& first,
                               const std::vector<PageId>& second) {
  static const std::vector<PageId> prefix = {20, 21}, suffix = {20, 21, 22, 23},
                                   other = {20, 21, 24};
  Batch batch = batch_of(first, 37, second, 16);
  const std::vector<int32_t> tokens(60, 0);
  batch.add(tokens.data(), 32, 0, prefix.data());
  batch.add_suffix(tokens.data(), 19, 2, suffix.data());
  batch.add_suffix(tokens.data(), 3, 2, other.data());
  return batch;
}

TEST_P(AttentionTest, GradientsAgreeWithAten) {
  const Batch batch = batch_with_shared_prefix(first_pages_, second_pages_);
  const at::Tensor raw = random_tensor({batch.rows(), width_}, type(), 1);
  at::Tensor qkv = raw.clone();
  rope_and_store(device_, rows_of(batch), rope_, qkv);
  const int64_t out_width = shape_.heads * shape_.head_size;
  at::Tensor out = at::empty({batch.rows(), out_width}, type()),
             lse = at::empty({batch.rows(), shape_.heads}, at::kFloat);
  attention(device_, rows_of(batch), qkv, {out, &lse});
  const at::Tensor d_out = random_tensor({batch.rows(), out_width}, type(), 2);
  at::Tensor got = at::empty({batch.rows(), width_}, type()), want = at::empty_like(got);
  at::Tensor got_q = at::zeros({shape_.head_size}, at::kFloat), got_k = got_q.clone(),
             want_q = got_q.clone(), want_k = got_q.clone();
  attention_backward(device_, rows_of(batch), rope_,
                     {qkv, raw, out, lse, d_out, got, &got_q, &got_k});
  aten::attention_backward(rows_of(batch), rope_,
                           {qkv, raw, out, lse, d_out, want, &want_q, &want_k});
  EXPECT_TRUE(tensors_near(got, want, type() == at::kFloat ? 1e-4 : 5e-2));
  if (sizes().normed) {
    EXPECT_TRUE(tensors_near(got_q, want_q, 1e-3));
    EXPECT_TRUE(tensors_near(got_k, want_k, 1e-3));
  }
}

// The ATen gradient itself, against finite differences of the ATen forward pass.
TEST(AttentionGradientTest, AgreesWithFiniteDifferences) {
  const AttentionShape shape{4, 2, 16};
  const int64_t prefix = 16, rows = prefix + 19 + 2, width = 8 * 16;
  const at::Tensor q_norm = random_tensor({16}, at::kFloat, 3),
                   k_norm = random_tensor({16}, at::kFloat, 4);
  RopeStore rope{.cos_sin = angles(64, 16), .q_norm = &q_norm, .k_norm = &k_norm};
  std::vector<PageId> pages = {1, 0, 3}, other_pages = {1, 2};
  Batch batch;
  const std::vector<int32_t> tokens(rows, 0);
  batch.add(tokens.data(), prefix, 0, pages.data());
  batch.add_suffix(tokens.data(), 19, 0, pages.data());
  batch.add_suffix(tokens.data(), 2, 0, other_pages.data());
  KvLayer cache{at::zeros({4, 1, 2, 2, 256}, at::kFloat), 0};
  const at::Tensor d_out = random_tensor({rows, 64}, at::kFloat, 5),
                   raw = random_tensor({rows, width}, at::kFloat, 6);
  at::Tensor out = at::empty({rows, 64}, at::kFloat), lse = at::empty({rows, 4}, at::kFloat);
  const auto loss = [&](const at::Tensor& input) {
    at::Tensor qkv = input.clone();
    aten::rope_and_store({shape, batch, cache}, rope, qkv);
    aten::attention({shape, batch, cache}, qkv, {out, &lse});
    return (out * d_out).sum().item<double>();
  };
  loss(raw);
  at::Tensor qkv = raw.clone(), gradient = at::empty_like(raw);
  aten::rope_and_store({shape, batch, cache}, rope, qkv);
  aten::attention_backward({shape, batch, cache}, rope,
                           {qkv, raw, out.clone(), lse.clone(), d_out, gradient});
  for (int64_t i = 0; i < 2 * rows; ++i) {
    const int64_t row = i % rows, column = (i * 37) % width;
    at::Tensor up = raw.clone(), down = raw.clone();
    up[row][column] += 1e-2;
    down[row][column] -= 1e-2;
    EXPECT_NEAR((loss(up) - loss(down)) / 2e-2, gradient[row][column].item<double>(), 5e-3)
        << row << ", " << column;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionTest,
    ::testing::Combine(::testing::Values(Sizes{4, 2, 16, false}, Sizes{6, 2, 32, true},
                                         Sizes{3, 3, 64, false}, Sizes{7, 1, 48, true}),
                       ::testing::Values(at::kFloat, at::kBFloat16)));

}  // namespace
}  // namespace tlt::ops
