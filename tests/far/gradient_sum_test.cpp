// The sum of gradients on a device that the host cannot touch, and an optimizer on the host: the bits
// of the CPU's, and copies in buckets that the host does not wait for.
//
// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_sum.h"

#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/far_device.h"
#include "tests/support/gradient_values.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_model.h"
#include "train/optimizer.h"

namespace tlt::tests {
namespace {

// Three packs, of values of very different sizes.
void add_packs(train::GradientSum& sum, const model::PolicyModel& model) {
  for (uint32_t pack = 0; pack < 3; ++pack) {
    model::Gradients gradients;
    for (const model::Parameter& parameter : model.parameters()) {
      const auto name = static_cast<uint32_t>(10 * gradients.tensors.size()) + pack;
      gradients.tensors.push_back((random_tensor(parameter.shape(), at::kFloat, name) *
                                   random_tensor(parameter.shape(), at::kFloat, name + 5).exp2())
                                      .to(model.device().torch()));
    }
    sum.add(gradients);
    for (const at::Tensor& tensor : gradients.tensors)
      EXPECT_EQ(tensor.abs().max().cpu().item<float>(), 0) << "left for the next pack";
  }
}

TEST(FarGradientSumTest, HasTheBitsOfTheCpus) {
  const model::ModelConfig config = tiny_config(model::Family::kQwen2);
  const auto near = make_tiny_model(config, at::kFloat, Device::cpu(2)),
             far = make_tiny_model(config, at::kFloat, Device::parse("far", 2));
  train::GradientSum want(*near), got(*far);
  const auto comm = train::solo();
  for (int step = 0; step < 2; ++step) {  // the second one after clear()
    add_packs(want, *near);
    add_packs(got, *far);
    EXPECT_EQ(got.reduce(*comm), want.reduce(*comm));
    for (size_t i = 0; i < near->parameters().size(); ++i) {
      const auto elements = near->parameters()[i].read(near->device()).numel();
      EXPECT_TRUE(at::equal(gradient_values(got.view(0.3), i, 0, elements),
                            gradient_values(want.view(0.3), i, 0, elements)))
          << near->parameters()[i].name();
      EXPECT_TRUE(at::equal(gradient_values(got.view(), i, 1, elements),
                            gradient_values(want.view(), i, 1, elements)));
    }
    want.clear();
    got.clear();
  }
}

TEST(FarGradientSumTest, FaultsAreThoseOfTheCpu) {
  const model::ModelConfig config = tiny_config(model::Family::kLlama);
  const auto near = make_tiny_model(config, at::kFloat, Device::cpu(1)),
             far = make_tiny_model(config, at::kFloat, Device::parse("far", 1));
  const auto comm = train::solo();
  for (const auto& values : std::vector<std::vector<float>>{
           {NAN}, {-INFINITY}, {4.2e6F}, {4e6F, 4e6F}, {2e6F, -2e6F}, {0.F, -1.F}}) {
    const auto fault_of = [&](const model::PolicyModel& model) {
      train::GradientSum sum(model);
      for (const float value : values) {
        model::Gradients gradients = model.make_gradients();
        gradients.tensors[2].view(-1).narrow(0, 5, 1).fill_(value);
        sum.add(gradients);
      }
      return sum.reduce(*comm);
    };
    EXPECT_EQ(fault_of(*far), fault_of(*near)) << values[0];
    EXPECT_EQ(fault_of(*near).empty(), values.back() <= 0 && std::isfinite(values.back()));
  }
}

// Parameters of two buckets, the first of which ends in Muon's.
struct Tables {
  explicit Tables(const Device& device) : device(device), fused(device, 200, 1000, at::kBFloat16) {
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{4100, 1000}, {130, 8}, {33}, {70}})
      tensors.push_back(waves(sizes, 0.61F));
    fused.assign(device, waves({200, 1000}, 0.83F));
    for (at::Tensor& tensor : tensors)
      parameters.push_back({.parts = {{"p" + std::to_string(parameters.size()), 0, tensor.size(0)}},
                            .tensor = &tensor});
    parameters.insert(parameters.begin() + 1, {.parts = {{"model.layers.0.k_proj", 0, 70},
                                                         {"model.layers.0.v_proj", 70, 130}},
                                               .matrix = &fused,
                                               .decays = true});
  }
  at::Tensor waves(const std::vector<int64_t>& sizes, float step) const {
    return (at::arange(c10::multiply_integers(sizes), at::kFloat) * step)
        .sin()
        .view(sizes)
        .to(device.torch());
  }
  void add_pack(train::GradientSum& sum) const {
    for (size_t p = 0; p < parameters.size(); ++p) {
      at::Tensor gradient = waves(parameters[p].shape(), 0.37F);
      sum.add(p, gradient);
    }
  }
  std::vector<at::Tensor> values() const {
    std::vector<at::Tensor> values;
    for (const model::Parameter& parameter : parameters)
      values.push_back(parameter.read(device).cpu());
    return values;
  }
  int64_t elements() const {
    int64_t elements = 0;
    for (const model::Parameter& parameter : parameters)
      elements += c10::multiply_integers(parameter.shape());
    return elements;
  }

  const Device device;
  ops::Weight fused;
  std::vector<at::Tensor> tensors;
  std::vector<model::Parameter> parameters;
};

train::OptimOptions optim(bool is_muon) {
  train::OptimOptions options;
  if (is_muon) options.optimizer = "Muon";
  return options;
}

// Weights, moments and norm of an optimizer that reads the sum in buckets, and of one that is asked for
// fewer elements at a time.
TEST(FarGradientSumTest, OptimizerStepsAreThoseOfTheCpu) {
  for (const bool is_muon : {false, true}) {
    Tables near(Device::cpu(2)), far(Device::parse("far", 2)), stepwise(Device::parse("far", 2));
    std::vector<std::vector<model::TensorSource>> states;
    double norm = 0;
    for (Tables* tables : {&near, &far, &stepwise}) {
      train::Optimizer optimizer(tables->parameters, tables->device, optim(is_muon));
      for (int step = 0; step < 2; ++step) {
        train::GradientSum sum(tables->parameters, tables->device);
        tables->add_pack(sum);
        if (tables != &stepwise) {
          const double got = optimizer.step(sum.view(0.5), 0.01);
          if (tables == &near) norm = got;
          EXPECT_EQ(got, norm);
          continue;
        }
        optimizer.begin_step(norm, 0.01);
        int64_t calls = 0;
        while (optimizer.try_update(sum.view(0.5), 1'000'000)) ++calls;
        optimizer.end_step();
        EXPECT_GT(calls, 4);
      }
      states.push_back(optimizer.snapshot());
    }
    // Muon's products are those of another device.
    for (size_t p = 0; p < near.values().size(); ++p)
      if (p != 1 || !is_muon) {
        EXPECT_TRUE(at::equal(far.values()[p], near.values()[p])) << p << ", Muon: " << is_muon;
      }
    EXPECT_TRUE(all_equal(stepwise.values(), far.values())) << "Muon: " << is_muon;
    for (size_t i = 0; i < states[0].size(); ++i)
      if (!is_muon || states[0][i].name != "master.model.layers.0.k_proj") {
        EXPECT_TRUE(at::equal(states[1][i].values(), states[0][i].values())) << states[0][i].name;
      }
  }
}

// The collectives of the second of three workers whose others do the same as it.
class EqualWorkersComm final : public cluster::Comm {
 public:
  int rank() const override { return 1; }
  int size() const override { return 3; }
  void barrier(const std::string&) override {}
  void all_reduce_sum(at::Tensor& tensor) override { tensor.mul_(size()); }
  void all_reduce_max(at::Tensor&) override {}
  at::Tensor reduce_scatter_sum(const at::Tensor& parts,
                                const std::vector<int64_t>& sizes) override {
    EXPECT_TRUE(parts.is_cpu());
    return parts.split_with_sizes(sizes)[1] * size();
  }
  void broadcast(at::Tensor&, int) override {}
  void all_gather(at::Tensor&) override {}
  std::vector<std::string> all_gather_bytes(const std::string& bytes) override {
    return std::vector<std::string>(3, bytes);
  }
  std::vector<double> all_reduce_sum(std::vector<double> values) override { return values; }
};

TEST(FarGradientSumTest, AWorkersShareOfTheSumIsThatOfTheCpu) {
  EqualWorkersComm comm;
  Tables near(Device::cpu(1)), far(Device::parse("far", 1));
  train::GradientSum whole(near.parameters, near.device), got(far.parameters, far.device);
  near.add_pack(whole);
  far.add_pack(got);
  EXPECT_EQ(whole.reduce(comm), "");
  const train::Shards shards(far.parameters, comm.size());
  EXPECT_EQ(got.reduce(comm, &shards), "");
  int64_t checked = 0;
  for (size_t p = 0; p < far.parameters.size(); ++p) {
    const int64_t row = far.parameters[p].shape().size() == 2 ? far.parameters[p].shape()[1] : 1;
    const train::RowRange rows = shards.of(p, comm.rank());
    const int64_t first = rows.first * row,
                  last = std::max(first + rows.rows * row, shards.chunks_of(p, comm.rank()).last);
    if (rows.rows == 0) continue;
    EXPECT_TRUE(at::equal(gradient_values(got.view(), p, first, last),
                          gradient_values(whole.view(), p, first, last)));
    checked += last - first;
  }
  EXPECT_GT(checked, shards.share_of(comm.rank()).size()) << "ends within a chunk";
}

// One for each bucket, whatever the number of parameters: the gradients twice, the weights once.
TEST(FarGradientSumTest, OptimizerStepCopiesBuckets) {
  Tables tables(Device::parse("far", 1));
  train::Optimizer optimizer(tables.parameters, tables.device, {});
  train::GradientSum sum(tables.parameters, tables.device);
  tables.add_pack(sum);
  const int64_t buckets = (tables.elements() + train::kCopiedBucket - 1) / train::kCopiedBucket;
  ASSERT_EQ(buckets, 2);
  ASSERT_EQ(tables.parameters.size(), 5U);
  const FarCounts before = far_counts();
  optimizer.step(sum.view(), 0.01);
  EXPECT_EQ(far_counts().downloads - before.downloads, 2 * buckets);
  EXPECT_EQ(far_counts().downloaded_bytes - before.downloaded_bytes, 2 * 4 * tables.elements());
  EXPECT_EQ(far_counts().uploads - before.uploads, buckets);
  EXPECT_EQ(far_copies_under_way(), 2) << "weights, which the host does not wait for";
}

TEST(FarGradientSumTest, NextBucketIsCopiedWhileTheHostUsesOne) {
  Tables tables(Device::parse("far", 1));
  train::GradientSum sum(tables.parameters, tables.device);
  tables.add_pack(sum);
  tables.device.synchronize();
  std::vector<train::Bucket> buckets;
  for (int64_t first = 0; first < 5; ++first)
    buckets.push_back({{0, first * 1000, first * 1000 + 500}, {2, first, 10 * first + 1}});
  size_t used = 0;
  sum.view().read(buckets, [&](const train::Bucket& bucket, const at::Tensor& gradients) {
    ++used;
    EXPECT_EQ(bucket.front().first, buckets[used - 1].front().first);
    EXPECT_EQ(far_copies_under_way(), used < buckets.size() ? 1 : 0) << used;
    EXPECT_EQ(gradients.numel(), 500 + bucket.back().size());
    EXPECT_FALSE(gradients.isnan().any().item<bool>()) << used;
  });
  EXPECT_EQ(used, buckets.size());
}

}  // namespace
}  // namespace tlt::tests
