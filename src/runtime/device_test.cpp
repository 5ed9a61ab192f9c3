// SPDX-License-Identifier: Apache-2.0
#include "runtime/device.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::runtime {
namespace {

TEST(DeviceTest, TensorsAreOnTheDeviceAskedFor) {
  for (const std::string name : {"cpu", "cuda"}) {
    if (name == "cuda" && !at::hasCUDA()) continue;
    const Device device = Device::parse(name, 1);
    EXPECT_EQ(device.empty({2, 3}, at::kFloat).device().type(), device.torch().type());
    EXPECT_EQ(device.is_cpu(), name == "cpu");
  }
}

TEST(DeviceTest, ThreadsAreThoseAskedForAndZeroMeansAllCores) {
  EXPECT_EQ(Device::parse("cpu", 3).pool().threads(), 3);
  EXPECT_EQ(Device::parse("cpu", 0).pool().threads(), available_cores());
}

TEST(DeviceTest, LastingZerosAreZerosOfAnySize) {
  const Device device = Device::cpu(1);
  const int64_t huge_page = int64_t{2} << 20;
  for (const int64_t bytes : {int64_t{0}, int64_t{10}, huge_page / 2, huge_page - 4, huge_page + 4,
                              3 * huge_page / 2 - 4, 3 * huge_page}) {
    at::Tensor x = device.lasting_zeros({bytes / 4}, at::kFloat);
    EXPECT_TRUE(x.equal(device.zeros({bytes / 4}, at::kFloat))) << bytes;
    x.fill_(1);  // every byte is there
    if (bytes >= huge_page / 2)
      EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data_ptr()) % static_cast<size_t>(huge_page), 0u);
  }
}

TEST(DeviceTest, UnknownNamesAreTheUsersMistake) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1"})
    EXPECT_THROW(Device::parse(name, 1), InputError) << name;
  if (!at::hasCUDA()) {
    EXPECT_THROW(Device::parse("cuda", 1), InputError);
  }
}

}  // namespace
}  // namespace tlt::runtime
