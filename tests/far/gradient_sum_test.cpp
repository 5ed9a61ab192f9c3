// The sum of gradients on a device that the host cannot touch: the bits of the CPU's sum.
//
// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_sum.h"

#include <gtest/gtest.h>

#include <cmath>

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
      EXPECT_TRUE(
          at::equal(got.view(0.3).read(i, 0, elements), want.view(0.3).read(i, 0, elements)))
          << near->parameters()[i].name();
      EXPECT_TRUE(at::equal(got.view().read(i, 1, elements), want.view().read(i, 1, elements)));
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

// Of an optimizer that reads the sum in parts: weights and norm.
TEST(FarGradientSumTest, OptimizerStepsAreThoseOfTheCpu) {
  const model::ModelConfig config = tiny_config(model::Family::kQwen2);
  const auto near = make_tiny_model(config, at::kFloat, Device::cpu(2)),
             far = make_tiny_model(config, at::kFloat, Device::parse("far", 2));
  train::Optimizer on_host(*near, {}), with_far(*far, {});
  train::GradientSum want(*near), got(*far);
  add_packs(want, *near);
  add_packs(got, *far);
  EXPECT_EQ(with_far.step(got.view(), 0.01), on_host.step(want.view(), 0.01));
  for (size_t i = 0; i < near->parameters().size(); ++i)
    EXPECT_TRUE(at::equal(far->parameters()[i].read(far->device()).cpu(),
                          near->parameters()[i].read(near->device())))
        << near->parameters()[i].name();
}

}  // namespace
}  // namespace tlt::tests
