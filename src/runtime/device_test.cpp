// SPDX-License-Identifier: Apache-2.0
#include "runtime/device.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "base/check.h"
#include "tests/support/test_device.h"

namespace tlt::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(DeviceTest, TensorsAreOnTheRequestedDevice) {
  const Device device = tests::test_device();
  EXPECT_EQ(device.empty({2, 3}, at::kFloat).device().type(), device.torch().type());
  EXPECT_EQ(device.is_cpu(), tests::tests_the_cpu());
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
  EXPECT_THROW(Device::parse("far", 1), InputError) << "a device of other tests";
}

// What it needs besides: tests/cuda/refusals_test.py.
TEST(DeviceTest, CudaIsRefusedUnlessItIsTried) {
  if (tries_cuda()) GTEST_SKIP() << "the environment has TLT_TRY_CUDA=1";
  EXPECT_THAT([] { Device::parse("cuda", 1, "trainer.device"); },
              ThrowsMessage<InputError>(
                  AllOf(HasSubstr("trainer.device=cuda: no GPU has passed the tests yet"),
                        HasSubstr("give trainer.device=cpu"), HasSubstr("TLT_TRY_CUDA=1"))));
}

}  // namespace
}  // namespace tlt::runtime
