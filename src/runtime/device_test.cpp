// SPDX-License-Identifier: Apache-2.0
#include "runtime/device.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::runtime {
namespace {

TEST(DeviceTest, TensorsAreOnTheRequestedDevice) {
  for (const std::string name : {"cpu", "cuda"}) {
    if (name == "cuda" && !cuda_is_tried()) continue;
    const Device device = Device::parse(name, 1);
    EXPECT_EQ(device.empty({2, 3}, at::kFloat).device().type(), device.torch().type());
    EXPECT_EQ(device.is_cpu(), name == "cpu");
  }
}

TEST(DeviceTest, ZeroThreadsMeansAllCores) {
  EXPECT_EQ(Device::parse("cpu", 3).pool().threads(), 3);
  EXPECT_EQ(Device::parse("cpu", 0).pool().threads(), available_cores());
}

TEST(DeviceTest, LastingZerosOutliveTheDevice) {
  at::Tensor x;
  {
    const Device device = Device::cpu(1);
    x = device.lasting_zeros({300, 1000}, at::kFloat);
  }
  EXPECT_EQ(x.sum().item<float>(), 0);
  x.fill_(1);
  EXPECT_EQ(x.sum().item<float>(), 300'000);
}

TEST(DeviceTest, UnknownNameIsAnInputError) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1"})
    EXPECT_THROW(Device::parse(name, 1), InputError) << name;
  if (!cuda_is_tried()) {
    EXPECT_THROW(Device::parse("cuda", 1), InputError);
  }
}

}  // namespace
}  // namespace tlt::runtime
