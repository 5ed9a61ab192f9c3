// The kernels between logits and tokens of a GPU (src/ops/cuda/sampling.h), run through the operations
// of the far device: the CPU kernels' tokens and statistics, whatever the batch and the order of
// threads, and nothing of the size of the vocabulary on the way to the host.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "ops/cuda/emulated_block.h"
#include "ops/sampling.h"
#include "tests/support/far_device.h"
#include "tests/support/tensors.h"

namespace tlt::tests {
namespace {

using ops::cuda::kThreadOrders;

class FarSamplingTest : public ::testing::Test {
 protected:
  ~FarSamplingTest() override { ops::cuda::set_thread_order(kThreadOrders[0]); }

  at::Tensor far(const at::Tensor& tensor) const {
    return tensor.to(far_.torch(), /*non_blocking=*/false, /*copy=*/true);
  }
  std::vector<ops::Sampled> sample(const Device& device, const at::Tensor& logits,
                                   int64_t vocabulary,
                                   const std::vector<ops::SampleRow>& rows) const {
    std::vector<ops::Sampled> sampled(rows.size());
    ops::sample_rows(device, logits, vocabulary, rows, sampled);
    return sampled;
  }

  const Device cpu_ = Device::cpu(1), far_ = Device::parse("far", 1);
};

// More rows than one launch lists, of several rules.
std::vector<ops::SampleRow> rows_to_sample(int64_t logits_rows, int64_t count, int64_t allowed) {
  RandomStream random(/*seed=*/3, {});
  std::vector<ops::SampleRow> rows;
  for (int64_t i = 0; i < count; ++i) {
    ops::SampleRow row{
        .row = static_cast<int64_t>(random.below(static_cast<uint64_t>(logits_rows))), .rule = {}};
    row.rule.temperature = i % 5 == 0 ? 0 : 0.3 + random.uniform();
    row.uniform = i % 17 == 1 ? 0 : random.uniform();
    row.tokens = i % 3 == 0 ? allowed : 0;
    rows.push_back(row);
  }
  std::ranges::stable_sort(rows, {}, &ops::SampleRow::tokens);
  return rows;
}

TEST_F(FarSamplingTest, TokensAreTheCpus) {
  for (const int64_t vocabulary : {1, 5, 40, 3001}) {
    SCOPED_TRACE(vocabulary);
    at::Tensor logits = random_tensor({37, vocabulary + 3}, at::kFloat, 1, 4);
    if (vocabulary > 30) {
      logits[3][7] = logits[3][20] = 30;            // of equal ones the first
      logits[4].narrow(0, 2, 25).fill_(-INFINITY);  // never sampled
    }
    const auto rows = rows_to_sample(37, 250, std::max<int64_t>(vocabulary - 2, 1));
    const auto want = sample(cpu_, logits, vocabulary, rows);
    const at::Tensor far_logits = far(logits);
    for (const auto order : kThreadOrders) {
      ops::cuda::set_thread_order(order);
      const FarCounts before = far_counts();
      const auto got = sample(far_, far_logits, vocabulary, rows);
      EXPECT_EQ(far_counts().downloads - before.downloads, 1);
      EXPECT_EQ(far_counts().uploads, before.uploads);
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(got[i].token, want[i].token) << "row " << i << ", uniform " << rows[i].uniform;
        EXPECT_NEAR(got[i].logprob, want[i].logprob, 1e-6 * (1 + std::abs(want[i].logprob)));
      }
    }
  }
}

// Float32 probabilities may add up to less than the largest uniform: then the last possible token.
TEST_F(FarSamplingTest, LargestUniformGivesAPossibleToken) {
  at::Tensor logits = random_tensor({30, 700}, at::kFloat, 1, 2);
  logits.narrow(1, 600, 90).fill_(-INFINITY);
  std::vector<ops::SampleRow> rows;
  for (int64_t i = 0; i < 30; ++i)
    rows.push_back({.row = i,
                    .rule = {.temperature = 0.5 + 0.1 * static_cast<double>(i)},
                    .uniform = 1 - 0x1p-53});
  const auto here = sample(cpu_, logits, 700, rows), there = sample(far_, far(logits), 700, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_GE(there[i].token, 500);
    EXPECT_GE(here[i].token, 500);
    EXPECT_TRUE(std::isfinite(there[i].logprob));
  }
}

TEST_F(FarSamplingTest, RowsDoNotDependOnTheirBatch) {
  const at::Tensor logits = far(random_tensor({37, 200}, at::kFloat, 1, 4));
  const auto rows = rows_to_sample(37, 60, 190);
  const auto all = sample(far_, logits, 200, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto one = sample(far_, logits, 200, {rows[i]});
    EXPECT_EQ(one[0].token, all[i].token);
    EXPECT_EQ(one[0].logprob, all[i].logprob);
  }
}

// The engine's logprob of a token is the trainer's, and so is the entropy.
TEST_F(FarSamplingTest, StatisticsOfEngineAndTrainerAreTheSameBits) {
  const at::Tensor logits = far(random_tensor({100, 300}, at::kFloat, 1, 4));
  std::vector<ops::SampleRow> rows;
  RandomStream random(/*seed=*/4, {});
  for (int64_t i = 0; i < 100; ++i)
    rows.push_back({.row = i, .rule = {.temperature = 0.7}, .uniform = random.uniform()});
  const auto sampled = sample(far_, logits, 290, rows);
  std::vector<int32_t> targets;
  for (const ops::Sampled& one : sampled) targets.push_back(one.token);
  at::Tensor own = logits;
  ops::RowStatistics statistics;
  ops::row_statistics(far_, {own, 290, at::tensor(targets, at::kInt), 0.7}, statistics);
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(statistics.logprob[i].item<float>(), sampled[static_cast<size_t>(i)].logprob);
    EXPECT_EQ(statistics.entropy[i].item<float>(), sampled[static_cast<size_t>(i)].entropy);
  }
}

TEST_F(FarSamplingTest, LogitsThatAreNotFiniteAreRefused) {
  for (const float bad : {NAN, INFINITY})
    for (const double temperature : {0.0, 1.0}) {
      at::Tensor logits = random_tensor({3, 40}, at::kFloat, 1);
      logits[1][11] = bad;
      const std::vector<ops::SampleRow> rows = {{.row = 0, .rule = {}},
                                                {.row = 1, .rule = {temperature}}};
      EXPECT_THROW(sample(far_, far(logits), 40, rows), Error) << bad;
    }
}

// Truncated rules, and lists of the most likely tokens, are the host's.
TEST_F(FarSamplingTest, OtherRulesAreTheCpus) {
  const at::Tensor logits = random_tensor({3, 40}, at::kFloat, 1, 3);
  std::vector<ops::Sampled> here_top, far_top;
  std::vector<ops::SampleRow> rows = {
      {.row = 0, .rule = {.top_k = 3}, .uniform = 0.6},
      {.row = 1, .rule = {.top_p = 0.7}, .uniform = 0.3},
      {.row = 2, .rule = {}, .uniform = 0.3, .top = &here_top, .top_count = 4}};
  EXPECT_FALSE(ops::samples_on_device(far_, rows));
  const auto want = sample(cpu_, logits, 40, rows);
  rows[2].top = &far_top;
  const auto got = sample(far_, far(logits), 40, rows);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(got[i].token, want[i].token);
  EXPECT_EQ(far_top.size(), 4u);
}

TEST_F(FarSamplingTest, StatisticsAndGradientsAreTheCpus) {
  for (const int64_t vocabulary : {3, 40, 2501}) {
    SCOPED_TRACE(vocabulary);
    const int64_t rows = 7;
    const at::Tensor logits = random_tensor({rows, vocabulary + 5}, at::kFloat, 1, 3),
                     targets = (at::arange(rows, at::kInt) * 5) % static_cast<int>(vocabulary),
                     d_logprob = random_tensor({rows}, at::kFloat, 2),
                     d_entropy = random_tensor({rows}, at::kFloat, 3);
    ops::RowStatistics want, got;
    const auto gradient = [&](const Device& device, ops::RowStatistics& statistics) {
      at::Tensor own = logits.to(device.torch(), /*non_blocking=*/false, /*copy=*/true);
      const ops::TargetRows target{own, vocabulary, targets, /*temperature=*/0.8};
      ops::row_statistics(device, target, statistics);
      ops::logits_backward(device, target, statistics, d_logprob, d_entropy);
      return own.cpu();
    };
    const at::Tensor d_want = gradient(cpu_, want), d_got = gradient(far_, got);
    EXPECT_TRUE(tensors_near(got.logprob, want.logprob, 1e-6));
    EXPECT_TRUE(tensors_near(got.lse, want.lse, 1e-6));
    EXPECT_TRUE(tensors_near(got.entropy, want.entropy, 2e-6));
    EXPECT_TRUE(tensors_near(d_got, d_want, 1e-6));
    for (const auto order : kThreadOrders) {
      ops::cuda::set_thread_order(order);
      ops::RowStatistics again;
      EXPECT_TRUE(at::equal(gradient(far_, again), d_got));
      EXPECT_TRUE(at::equal(again.entropy, got.entropy));
    }
    ops::cuda::set_thread_order(kThreadOrders[0]);
  }
}

TEST_F(FarSamplingTest, TargetOutsideTheVocabularyIsAnError) {
  at::Tensor logits = far(random_tensor({2, 40}, at::kFloat, 1));
  ops::RowStatistics statistics;
  for (const int32_t target : {-1, 40}) {
    const at::Tensor targets = at::tensor({3, target}, at::kInt);
    EXPECT_THROW(ops::row_statistics(far_, {logits, 40, targets, 1.0}, statistics), Error);
  }
}

TEST_F(FarSamplingTest, MostLikelyTokensAndWhatPrecedesThem) {
  for (const int64_t vocabulary : {8, 1000})
    for (const int64_t k : {3, 8}) {
      const int64_t rows = 250;  // more than one launch lists
      at::Tensor logits = random_tensor({rows, vocabulary}, at::kFloat, 1, 3);
      logits[1].copy_(logits[1].mul(2).round());  // many equal ones
      logits[2].fill_(-INFINITY)[3] = 1;
      std::vector<float> inverse(static_cast<size_t>(rows));
      for (size_t i = 0; i < inverse.size(); ++i) inverse[i] = 1 + 0.01f * static_cast<float>(i);
      std::vector<ops::TopToken> top;
      const FarCounts before = far_counts();
      const at::Tensor far_logits = far(logits);
      ops::find_top_tokens(far_, {far_logits, k, inverse}, top);
      EXPECT_EQ(far_counts().downloads - before.downloads, 1);
      ASSERT_EQ(std::ssize(top), rows * k);
      for (int64_t row = 0; row < rows; ++row) {
        const float* of_row = logits.data_ptr<float>() + row * vocabulary;
        std::vector<int32_t> ids(static_cast<size_t>(vocabulary));
        std::iota(ids.begin(), ids.end(), 0);
        std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) { return of_row[a] > of_row[b]; });
        const at::Tensor p =
            at::softmax(logits[row].to(at::kDouble) * double(inverse[static_cast<size_t>(row)]), 0);
        for (int64_t i = 0; i < k; ++i) {
          const ops::TopToken& one = top[static_cast<size_t>(row * k + i)];
          const int32_t want = ids[static_cast<size_t>(i)];
          if (row == 2 && i > 0) {
            EXPECT_EQ(one.token, -1);
            continue;
          }
          ASSERT_EQ(one.token, want) << "row " << row << ", place " << i;
          EXPECT_NEAR(one.probability, p[want].item<double>(), 2e-6);
          EXPECT_NEAR(one.before, p.narrow(0, 0, want).sum().item<double>(), 5e-6);
        }
      }
    }
}

}  // namespace
}  // namespace tlt::tests
