// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_sum.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "tests/support/failing_comm.h"
#include "tests/support/golden_batch.h"
#include "tests/support/gradient_values.h"
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

std::vector<at::Tensor> values_of(const GradientSum& sum, const model::PolicyModel& model) {
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    const std::vector<int64_t> shape = model.parameters()[i].shape();
    values.push_back(
        tests::gradient_values(sum.view(), i, 0, c10::multiply_integers(shape)).view(shape));
  }
  return values;
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
  EXPECT_EQ(sum.reduce(comm), "");
  return values_of(sum, model);
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

// Parameters whose shares end within a chunk, and are exchanged in several pieces.
struct Tables {
  Tables() {
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{70}, {5000, 1000}, {3, 100'000}, {130, 8}})
      tensors.push_back(at::zeros(sizes));
    for (at::Tensor& tensor : tensors)
      parameters.push_back({.parts = {{"p" + std::to_string(parameters.size()), 0, tensor.size(0)}},
                            .tensor = &tensor});
  }
  // Of elements that differ by pack and place, among them none that is 0.
  void add_pack(GradientSum& sum, float pack) const {
    for (size_t p = 0; p < tensors.size(); ++p) {
      at::Tensor gradient = at::arange(tensors[p].numel(), at::kFloat)
                                .add_(pack)
                                .sin_()
                                .add_(1.5)
                                .view(tensors[p].sizes());
      sum.add(p, gradient);
    }
  }

  std::vector<at::Tensor> tensors;
  std::vector<model::Parameter> parameters;
};

at::Tensor flat_values(const GradientSum& sum, const Tables& tables) {
  std::vector<at::Tensor> values;
  for (size_t p = 0; p < tables.tensors.size(); ++p)
    values.push_back(tests::gradient_values(sum.view(), p, 0, tables.tensors[p].numel()));
  return at::cat(values);
}

constexpr int kPacks = 3;

// Their sum on one worker.
at::Tensor sum_of_packs(const Tables& tables) {
  GradientSum sum(tables.parameters, Device::cpu(1));
  for (int pack = 0; pack < kPacks; ++pack) tables.add_pack(sum, static_cast<float>(pack));
  return flat_values(sum, tables);
}

// Each collective waits for all workers, so their number does not grow with the parameters: one for
// the faults, and two for 5.3 million elements.
TEST(GradientSumTest, EachWorkerGetsAllOfTheSumInFewCollectives) {
  const Device device = Device::cpu(1);
  const Tables tables;
  const at::Tensor want = sum_of_packs(tables);
  run_workers(2, [&](cluster::Comm& comm) {
    cluster::FailingComm counted(comm, /*failing_call=*/100);
    GradientSum sum(tables.parameters, device);
    for (int pack = comm.rank(); pack < kPacks; pack += comm.size())
      tables.add_pack(sum, static_cast<float>(pack));
    EXPECT_EQ(sum.reduce(counted), "");
    EXPECT_EQ(counted.calls(), 3);
    EXPECT_TRUE(at::equal(flat_values(sum, tables), want)) << comm.rank();
  });
}

TEST(GradientSumTest, EachWorkerGetsItsShareOfTheSumAndReleasesTheRest) {
  const Device device = Device::cpu(1);
  const Tables tables;
  const at::Tensor want = sum_of_packs(tables);
  for (const int workers : {2, 3}) {
    const Shards shards(tables.parameters, workers);
    run_workers(workers, [&](cluster::Comm& comm) {
      GradientSum sum(tables.parameters, device);
      for (int round = 0; round < 2; ++round) {  // the second one after clear()
        for (int pack = comm.rank(); pack < kPacks; pack += workers)
          tables.add_pack(sum, static_cast<float>(pack));
        EXPECT_EQ(sum.reduce(comm, &shards), "");
        const ElementRange share = shards.share_of(comm.rank());
        const int64_t end = shards.chunk_end_of(comm.rank()).last;
        const at::Tensor got = flat_values(sum, tables);
        EXPECT_TRUE(at::equal(got.slice(0, share.first, end), want.slice(0, share.first, end)))
            << comm.rank() << " of " << workers;
        EXPECT_TRUE(comm.rank() + 1 == workers || end > share.last) << "ends within a chunk";
        // Zero where memory was released: all but two pages of 2 MB at either side.
        const int64_t others = got.numel() - (end - share.first), in_pages = 4 * (2 << 20) / 8;
        EXPECT_GE(got.eq(0).sum().item<int64_t>(), others - in_pages) << comm.rank();
        EXPECT_EQ(got.slice(0, share.first, end).eq(0).sum().item<int64_t>(), 0);
        sum.clear();
      }
    });
  }
}

// Any parts, one after the other: the memory of a part is used again.
TEST(GradientSumTest, PartsAreThoseOfTheWhole) {
  const auto model = golden_model("llama_tied", 2);
  GradientSum sum(*model);
  auto packs = random_gradients(*model, 2);
  for (model::Gradients& pack : packs) sum.add(pack);
  const at::Tensor whole = values_of(sum, *model)[0].flatten();
  const GradientView halves = sum.view(0.5);
  for (const int64_t part : {1, 77, 1000})
    for (int64_t first = 0; first + part <= std::min<int64_t>(whole.numel(), 3000); first += part)
      EXPECT_TRUE(at::equal(tests::gradient_values(halves, 0, first, first + part),
                            whole.narrow(0, first, part) * 0.5F))
          << first << " of parts of " << part;
}

// Adds a pack in which the first parameter has this gradient.
void add_pack(GradientSum& sum, const model::PolicyModel& model, float value) {
  model::Gradients gradients = model.make_gradients();
  gradients.tensors[0].fill_(value);
  sum.add(gradients);
  EXPECT_EQ(gradients.tensors[0].abs().max().item<float>(), 0) << "left for the next pack";
}

TEST(GradientSumTest, FaultNamesAnInvalidGradientUntilClear) {
  const auto model = golden_model("llama_tied");
  const auto comm = solo();
  GradientSum sum(*model);
  for (const float bad : {NAN, -NAN, INFINITY, -INFINITY, 4.2e6F, -1e30F}) {
    model::Gradients gradients = model->make_gradients();
    gradients.tensors[2].data_ptr<float>()[5] = bad;
    sum.add(gradients);
    add_pack(sum, *model, 1.F);
    EXPECT_EQ(sum.reduce(*comm),
              "the gradient of " + model->parameters()[2].name() + " is not finite or above 4e6")
        << bad;
    sum.clear();
    add_pack(sum, *model, 1.F);
    EXPECT_EQ(sum.reduce(*comm), "") << bad;
    EXPECT_EQ(values_of(sum, *model)[0].min().item<float>(), 1.F) << bad;
    sum.clear();
  }
}

// A sum in another order could overflow where this one does not, so both are refused.
TEST(GradientSumTest, FaultDoesNotDependOnTheOrder) {
  const auto model = golden_model("llama_tied");
  const auto comm = solo();
  GradientSum sum(*model);
  for (const std::vector<float>& packs : {std::vector{4e6F, 4e6F, -4e6F}, {4e6F, -4e6F, 4e6F}}) {
    sum.clear();
    for (const float value : packs) add_pack(sum, *model, value);
    EXPECT_THAT(sum.reduce(*comm), testing::HasSubstr("is above 4e6 in sum"));
  }
  sum.clear();
  for (const float value : {2e6F, -2e6F}) add_pack(sum, *model, value);
  EXPECT_EQ(sum.reduce(*comm), "");
  EXPECT_EQ(values_of(sum, *model)[0].abs().max().item<float>(), 0);
}

// One worker has the invalid pack, or only all of them together are too large.
TEST(GradientSumTest, AllWorkersSeeTheFaultOfOneWorker) {
  for (const std::vector<float>& packs :
       {std::vector{NAN, 1.F, 1.F}, {1.F, 1.F, INFINITY}, {2e6F, 2e6F, -2e6F}}) {
    std::vector<std::string> alone(1), faults(3);
    run_workers(1, [&](cluster::Comm& comm) {
      const auto model = golden_model("llama_tied");
      GradientSum sum(*model);
      for (const float value : packs) add_pack(sum, *model, value);
      alone[0] = sum.reduce(comm);
    });
    for (const bool are_shared : {false, true}) {
      run_workers(3, [&](cluster::Comm& comm) {
        const auto model = golden_model("llama_tied");
        const Shards shards(model->parameters(), comm.size());
        GradientSum sum(*model);
        add_pack(sum, *model, packs[static_cast<size_t>(comm.rank())]);
        faults[static_cast<size_t>(comm.rank())] = sum.reduce(comm, are_shared ? &shards : nullptr);
      });
      EXPECT_THAT(alone[0], testing::HasSubstr("the gradient of "));
      EXPECT_THAT(faults, testing::Each(alone[0])) << packs[0];
    }
  }
}

}  // namespace
}  // namespace tlt::train
