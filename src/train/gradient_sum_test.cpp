// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_sum.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "tests/support/golden_batch.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_comm.h"

namespace tlt::train {
namespace {

// Values of very different sizes: their float32 sum depends on the order.
std::vector<model::Gradients> random_gradients(const model::PolicyModel& model, size_t packs) {
  std::vector<model::Gradients> all;
  for (size_t i = 0; i < packs; ++i) {
    all.push_back(model.make_gradients());
    for (size_t p = 0; p < all[i].tensors.size(); ++p) {
      RandomStream random(1,
                          {.prompt = static_cast<uint32_t>(p), .sample = static_cast<uint32_t>(i)});
      at::Tensor& tensor = all[i].tensors[p];
      for (int64_t k = 0; k < tensor.numel(); ++k)
        tensor.data_ptr<float>()[k] =
            static_cast<float>(random.normal() * std::exp2(-20 + 25 * random.uniform()));
    }
  }
  return all;
}

std::vector<at::Tensor> sum_of(const model::PolicyModel& model,
                               const std::vector<model::Gradients>& packs,
                               const std::vector<size_t>& order, cluster::Comm& comm) {
  GradientSum sum(model);
  for (const size_t i : order) {
    model::Gradients copy;
    for (const at::Tensor& tensor : packs[i].tensors) copy.tensors.push_back(tensor.clone());
    sum.add(copy);
    for (const at::Tensor& tensor : copy.tensors)
      EXPECT_EQ(tensor.abs().max().item<float>(), 0) << "left for the next pack";
  }
  sum.reduce(comm);
  model::Gradients result = model.make_gradients();
  sum.read(result);
  return result.tensors;
}

std::vector<at::Tensor> alone(const model::PolicyModel& model,
                              const std::vector<model::Gradients>& packs,
                              const std::vector<size_t>& order) {
  std::vector<at::Tensor> result;
  run_workers(1, [&](cluster::Comm& comm) { result = sum_of(model, packs, order, comm); });
  return result;
}

TEST(GradientSumTest, SumIsExactAndRoundedOnce) {
  const auto model = golden_model("llama_tied", 2);
  const auto packs = random_gradients(*model, 7);
  const auto got = alone(*model, packs, {0, 1, 2, 3, 4, 5, 6});
  for (size_t p = 0; p < got.size(); ++p) {
    at::Tensor want = at::zeros(
        got[p].sizes(), at::kDouble);  // terms are multiples of 2^-40 below 2^10: exact in 53 bits
    for (const auto& pack : packs)
      want += (pack.tensors[p].to(at::kDouble) * 0x1p40).round() * 0x1p-40;
    EXPECT_TRUE(at::equal(got[p], want.to(at::kFloat))) << p;
  }
}

TEST(GradientSumTest, OrderAndNumberOfWorkersChangeNoBit) {
  const auto model = golden_model("llama_tied");
  const auto packs = random_gradients(*model, 7);
  const auto want = alone(*model, packs, {0, 1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(tests::all_equal(alone(*model, packs, {6, 2, 4, 0, 5, 3, 1}), want));
  // The control: a float32 sum depends on the order.
  at::Tensor forward = packs[0].tensors[0].clone(), backward = packs[6].tensors[0].clone();
  for (size_t i = 1; i < 7; ++i)
    forward += packs[i].tensors[0], backward += packs[6 - i].tensors[0];
  EXPECT_FALSE(at::equal(forward, backward));

  for (const int workers : {1, 2, 3}) {
    std::vector<std::vector<at::Tensor>> got(static_cast<size_t>(workers));
    run_workers(workers, [&](cluster::Comm& comm) {
      std::vector<size_t> mine;
      for (size_t i = 0; i < packs.size(); ++i)
        if (static_cast<int>(i * i + i / 2) % comm.size() == comm.rank()) mine.push_back(i);
      const auto own = golden_model("llama_tied");
      got[static_cast<size_t>(comm.rank())] = sum_of(*own, packs, mine, comm);
    });
    for (const auto& one : got) EXPECT_TRUE(tests::all_equal(one, want)) << workers << " workers";
  }
}

TEST(GradientSumTest, ErrorNamesAnInvalidGradient) {
  const auto model = golden_model("llama_tied");
  for (const float bad : {NAN, INFINITY, -INFINITY, 4.2e6F, -1e30F}) {
    GradientSum sum(*model);
    model::Gradients gradients = model->make_gradients();
    gradients.tensors[2].data_ptr<float>()[5] = bad;
    try {
      sum.add(gradients);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  testing::HasSubstr("the gradient of " + model->parameters()[2].name()))
          << bad;
    }
  }
}

TEST(GradientSumTest, OverflowOfTheSumIsAnError) {
  const auto model = golden_model("llama_tied");
  GradientSum sum(*model);
  const auto add = [&](float value) {
    model::Gradients gradients = model->make_gradients();
    gradients.tensors[0].fill_(value);
    sum.add(gradients);
  };
  add(4e6F);
  EXPECT_THROW(add(4e6F), Error);
  sum.clear();
  add(4e6F);
  add(-4e6F);
  model::Gradients result = model->make_gradients();
  sum.read(result);
  EXPECT_EQ(result.tensors[0].abs().max().item<float>(), 0);
}

TEST(GradientSumTest, OverflowOverWorkersFailsOnAllOfThem) {
  int failed = 0;
  std::mutex mutex;
  run_workers(2, [&](cluster::Comm& comm) {
    const auto model = golden_model("llama_tied");
    GradientSum sum(*model);
    model::Gradients gradients = model->make_gradients();
    gradients.tensors[0].fill_(comm.rank() == 0 ? 4e6F : 1.F);
    sum.add(gradients);
    try {
      sum.reduce(comm);
    } catch (const Error&) {
      const std::lock_guard lock(mutex);
      ++failed;
    }
  });
  EXPECT_EQ(failed, 2);
}

}  // namespace
}  // namespace tlt::train
