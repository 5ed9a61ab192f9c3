// SPDX-License-Identifier: Apache-2.0
#include "ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/check.h"
#include "base/random.h"
#include "ops/cpu/kernels.h"
#include "tests/support/kept_probabilities.h"
#include "tests/support/tensors.h"

namespace tlt::ops {
namespace {

using tests::random_tensor;
using tests::tensors_near;

constexpr int64_t kVocabulary = 117, kLogitColumns = 120;

Sampled sample_one(const at::Tensor& logits, const SamplingRule& rule, double u) {
  Sampled out;
  const SampleRow row{.row = 0, .rule = rule, .uniform = u};
  sample_rows(Device::cpu(1), logits, kVocabulary, {&row, 1}, {&out, 1});
  return out;
}

TEST(SamplingTest, GreedyTakesTheLowestOfEqualTokens) {
  at::Tensor logits = random_tensor({1, kLogitColumns}, at::kFloat, 1);
  logits[0][40] = logits[0][90] = 9.0;
  logits[0][118] = 50.0;  // padding is never sampled
  const Sampled got = sample_one(logits, {.temperature = 0}, 0.5);
  EXPECT_EQ(got.token, 40);
  EXPECT_NEAR(got.logprob,
              at::log_softmax(logits.narrow(1, 0, kVocabulary), 1)[0][40].item<double>(), 1e-5);
}

// The list is of the whole distribution, whatever is truncated; equal logits by id; no padding.
TEST(SamplingTest, TopTokensHaveTheLogprobsThatSamplingReports) {
  at::Tensor logits = random_tensor({1, kLogitColumns}, at::kFloat, 5, 2.0);
  logits[0][40] = logits[0][90] = 9.0;
  logits[0][118] = 50.0;
  for (const double temperature : {0.0, 0.7}) {
    const SamplingRule rule{.temperature = temperature, .top_k = 2};
    std::vector<Sampled> top;
    SampleRow row{.row = 0, .rule = rule, .uniform = 0.3};
    row.top = &top, row.top_count = 5;
    Sampled got;
    sample_rows(Device::cpu(1), logits, kVocabulary, {&row, 1}, {&got, 1});
    EXPECT_EQ(got.token, sample_one(logits, rule, 0.3).token) << "the list changes no token";
    ASSERT_EQ(top.size(), 5u);
    EXPECT_EQ(top[0].token, 40);
    EXPECT_EQ(top[1].token, 90);
    EXPECT_EQ(got.logprob, top[got.token == 40 ? 0 : 1].logprob) << "the same bits";
    const at::Tensor expected =
        at::log_softmax(logits.narrow(1, 0, kVocabulary) / rule.logprob_temperature(), 1)[0];
    const at::Tensor sorted = std::get<0>(expected.sort(/*dim=*/0, /*descending=*/true));
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_NEAR(top[static_cast<size_t>(i)].logprob, sorted[i].item<double>(), 1e-5) << i;
  }
}

// Padding of the vocabulary, however likely: by each rule the token is that of the logits without
// padding, and its logprob is of the whole distribution.
TEST(SamplingTest, IdsBeyondTheLimitAreNeverSampled) {
  constexpr int64_t kTokens = 90;
  RandomStream random(17, {});
  const TargetOnlyRule target_only;
  const std::vector<int32_t> draft_tokens = {95, 3, 91, 40};
  for (int round = 0; round < 400; ++round) {
    at::Tensor logits = random_tensor({1, kLogitColumns}, at::kFloat, 100 + round, 2.0);
    for (int64_t i = kTokens; i < kVocabulary; ++i) logits[0][i] += round % 2 == 0 ? 0.0 : 60.0;
    const at::Tensor all = at::log_softmax(logits.narrow(1, 0, kVocabulary) / 0.7, 1)[0];
    const SamplingRule rules[] = {{.temperature = 0},
                                  {.temperature = 0.7},
                                  {.temperature = 0.7, .top_k = 7},
                                  {.temperature = 0.7, .top_p = 0.8},
                                  {.temperature = 0.7, .min_p = 0.05}};
    for (const SamplingRule& rule : rules) {
      for (const bool is_target_only : {false, true}) {
        SampleRow row{.row = 0, .rule = rule, .uniform = random.uniform()};
        if (is_target_only) row.target_only = &target_only, row.draft_tokens = draft_tokens;
        row.rest_uniform = random.uniform();
        Sampled want, got;
        sample_rows(Device::cpu(1), logits, kTokens, {&row, 1}, {&want, 1});
        row.tokens = kTokens;
        sample_rows(Device::cpu(1), logits, kVocabulary, {&row, 1}, {&got, 1});
        ASSERT_EQ(got.token, want.token) << round;
        ASSERT_LT(got.token, kTokens);
        if (rule.temperature == 0) continue;
        ASSERT_NEAR(got.logprob, all[got.token].item<float>(), 1e-4);
      }
    }
  }
}

TEST(SamplingTest, UniformPicksTokenByCumulativeProbability) {
  const at::Tensor logits = random_tensor({1, kLogitColumns}, at::kFloat, 2, 2.0);
  const at::Tensor p = at::softmax(logits.narrow(1, 0, kVocabulary).to(at::kDouble) / 0.7, 1)[0];
  double before = 0;
  for (int32_t i = 0; i < kVocabulary; ++i) {
    const double share = p[i].item<double>();
    if (share > 1e-5) {
      EXPECT_EQ(sample_one(logits, {.temperature = 0.7}, before + share / 2).token, i);
    }
    before += share;
  }
}

TEST(SamplingTest, EveryUniformGivesATokenOfNonzeroProbability) {
  at::Tensor logits = at::full({1, kLogitColumns}, -1000.0, at::kFloat);
  logits[0][3] = logits[0][77] = 0.0;
  for (const double u : {0.0, 0.25, 0.4999, 0.5001, 0.75, 1 - 0x1.0p-53})
    EXPECT_EQ(sample_one(logits, {}, u).token, u < 0.5 ? 3 : 77) << u;
}

TEST(SamplingTest, TruncationsKeepWhatTheirDefinitionsKeep) {
  const at::Tensor logits = random_tensor({1, kLogitColumns}, at::kFloat, 3, 2.0);
  const SamplingRule rules[] = {{.top_k = 1},
                                {.top_k = 5},
                                {.top_p = 0.5},
                                {.top_p = 0.01},
                                {.top_p = 0.95},
                                {.min_p = 0.2},
                                {.temperature = 1.7, .top_k = 20, .top_p = 0.8, .min_p = 0.05}};
  for (const SamplingRule& rule : rules) {
    const auto want = tests::kept_probabilities(logits[0].narrow(0, 0, kVocabulary), rule);
    std::map<int32_t, double> seen;
    constexpr int kDraws = 4000;
    for (int i = 0; i < kDraws; ++i) {
      const Sampled got = sample_one(logits, rule, (i + 0.5) / kDraws);
      seen[got.token] += 1.0 / kDraws;
      ASSERT_TRUE(want.contains(got.token)) << "token " << got.token << " is not allowed";
    }
    for (const auto& [token, p] : want) EXPECT_NEAR(seen[token], p, 1.0 / kDraws + 1e-9) << token;
  }
}

TEST(SamplingTest, RolloutStatisticsAreBitIdenticalToTrainers) {
  at::Tensor logits = random_tensor({64, kLogitColumns}, at::kFloat, 4, 3.0);
  for (const double temperature : {1.0, 0.7, 1.3}) {
    std::vector<SampleRow> asked(64);
    for (size_t i = 0; i < 64; ++i)
      asked[i] = {.row = static_cast<int64_t>(i),
                  .rule = {.temperature = temperature, .top_k = i % 3 == 0 ? 10 : 0},
                  .uniform = static_cast<double>(i) / 64};
    std::vector<Sampled> sampled(64);
    sample_rows(Device::cpu(2), logits, kVocabulary, asked, sampled);
    at::Tensor targets = at::empty({64}, at::kInt);
    for (int64_t i = 0; i < 64; ++i) targets[i] = sampled[static_cast<size_t>(i)].token;
    RowStatistics rows;
    row_statistics(Device::cpu(1), {logits, kVocabulary, targets, temperature}, rows);
    for (int64_t i = 0; i < 64; ++i) {
      EXPECT_EQ(rows.logprob[i].item<float>(), sampled[static_cast<size_t>(i)].logprob)
          << "row " << i;
      EXPECT_EQ(rows.entropy[i].item<float>(), sampled[static_cast<size_t>(i)].entropy)
          << "row " << i;
    }
  }
}

TEST(SamplingTest, StatisticsAndGradientMatchReference) {
  const double temperature = 0.8;
  at::Tensor logits = random_tensor({3, kLogitColumns}, at::kFloat, 5, 2.0);
  const at::Tensor targets = at::tensor({5, 0, 116}, at::kInt);
  const at::Tensor log_p =
      at::log_softmax(logits.narrow(1, 0, kVocabulary).to(at::kDouble) / temperature, 1);
  RowStatistics rows;
  row_statistics(Device::cpu(1), {logits, kVocabulary, targets, temperature}, rows);
  const at::Tensor want = log_p.gather(1, targets.to(at::kLong).unsqueeze(1)).squeeze(1);
  EXPECT_TRUE(tensors_near(rows.logprob, want, 1e-5));
  EXPECT_TRUE(tensors_near(rows.entropy, -(log_p.exp() * log_p).sum(1), 1e-5));

  const at::Tensor d_logprob = at::tensor({0.5f, -1.f, 2.f}),
                   d_entropy = at::tensor({0.f, 0.3f, -0.7f});
  at::Tensor gradient = logits.clone();
  logits_backward(Device::cpu(1), {gradient, kVocabulary, targets, temperature}, rows, d_logprob,
                  d_entropy);
  const auto value = [&](const at::Tensor& x) {
    const at::Tensor lp = at::log_softmax(x.narrow(1, 0, kVocabulary) / temperature, 1);
    return ((lp.gather(1, targets.to(at::kLong).unsqueeze(1)).squeeze(1) * d_logprob).sum() -
            ((lp.exp() * lp).sum(1) * d_entropy).sum())
        .item<double>();
  };
  for (int64_t row = 0; row < 3; ++row)
    for (const int64_t column : {0, 5, 17, 116}) {
      at::Tensor up = logits.to(at::kDouble), down = up.clone();
      up[row][column] += 1e-5;
      down[row][column] -= 1e-5;
      EXPECT_NEAR(gradient[row][column].item<double>(), (value(up) - value(down)) / 2e-5, 1e-5)
          << row << ", " << column;
    }
  EXPECT_EQ(gradient.narrow(1, kVocabulary, 3).abs().max().item<float>(), 0);
}

TEST(SamplingTest, NonFiniteLogitsThrowAClearError) {
  at::Tensor logits = random_tensor({1, kLogitColumns}, at::kFloat, 6);
  logits[0][7] = NAN;
  logits[0][8] = INFINITY;
  EXPECT_THROW(sample_one(logits, {}, 0.5), Error);
}

// Tables of this machine agree within rounding; which of them runs depends on the machine.
TEST(KernelTableTest, AllInstructionSetsAgree) {
  const at::Tensor x = random_tensor({7, 64}, at::kFloat, 7),
                   w = random_tensor({64}, at::kFloat, 8);
  const Kernels& best = cpu_kernels();
  at::Tensor want = at::empty_like(x);
  best.rms_norm(Type::kFloat, {x.data_ptr(), w.data_ptr<float>(), 1e-6f, 7, 64, want.data_ptr()});
  int tables = 0;
  for (const char* name : {"avx512bf16", "avx512", "avx2"})
    if (const Kernels* table = cpu_kernels(name)) {
      ++tables;
      EXPECT_STREQ(table->name, name);
      at::Tensor got = at::empty_like(x);
      table->rms_norm(Type::kFloat,
                      {x.data_ptr(), w.data_ptr<float>(), 1e-6f, 7, 64, got.data_ptr()});
      EXPECT_TRUE(tensors_near(got, want, 1e-5)) << name;
      at::Tensor panel = random_tensor({64 * 64}, at::kFloat, 9), a = at::empty({7, 64}),
                 b = at::empty({7, 64});
      for (const auto& [kernels, out] : {std::pair(table, &a), std::pair(&best, &b)})
        kernels->gemm(Type::kFloat, {.a = x.data_ptr(),
                                     .a_row_stride = 64,
                                     .b = panel.data_ptr(),
                                     .units = 64,
                                     .rows = 7,
                                     .panels = 1,
                                     .columns = 64,
                                     .out = out->data_ptr(),
                                     .out_stride = 64,
                                     .out_is_float = true});
      EXPECT_TRUE(tensors_near(a, b, 1e-4)) << name;
    }
  EXPECT_GE(tables, 1);
  EXPECT_EQ(cpu_kernels("sse"), nullptr);
}

// Each instruction set that the machine has, at lengths that are no multiple of a block.
TEST(KernelTableTest, LargestLogitsAndSumsOfExponentials) {
  RandomStream random(/*seed=*/5, {});
  for (const char* name : {"avx512bf16", "avx512", "avx2"})
    if (const Kernels* kernels = cpu_kernels(name))
      for (const size_t count : {1, 15, 16, 63, 64, 65, 1000, 4096}) {
        std::vector<float> logits(count), tops((count + kTopBlock - 1) / kTopBlock);
        for (float& x : logits) x = static_cast<float>(8 * random.normal());
        const float top = kernels->block_tops(logits.data(), std::ssize(logits), tops.data());
        EXPECT_EQ(top, std::ranges::max(logits)) << name << " " << count;
        for (size_t block = 0; block < tops.size(); ++block) {
          const size_t first = block * kTopBlock;
          EXPECT_EQ(tops[block], std::ranges::max(std::span(logits).subspan(
                                     first, std::min<size_t>(kTopBlock, count - first))));
        }
        for (const float inverse : {1.0f, 0.5f, 3.0f}) {
          double sum = 0;
          for (const float x : logits)
            sum += std::exp((static_cast<double>(x) - top) * static_cast<double>(inverse));
          const float got = kernels->sum_of_exp(logits.data(), std::ssize(logits), top, inverse);
          const double bound = 2e-6 + (inverse == 1 ? 0 : 1e-7 * std::abs(top * inverse));
          EXPECT_NEAR(got, sum, bound * sum) << name << " " << count << " " << inverse;
        }
      }
}

}  // namespace
}  // namespace tlt::ops
