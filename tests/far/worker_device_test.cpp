// The device of a worker, and the threads of the host that work for it.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "base/check.h"
#include "run/run_context.h"

namespace tlt::tests {
namespace {

Device device_of(const std::string& name, const cluster::Launch& launch, int64_t threads = 1) {
  run::RunOptions options;
  options.trainer.device = name;
  options.trainer.threads = threads;
  return run::make_device(options, launch);
}

cluster::Launch worker(int local_rank) {
  return {.rank = local_rank, .world_size = 5, .local_rank = local_rank, .local_world_size = 5};
}

TEST(WorkerDeviceTest, WorkersOfAHostTakeDifferentCards) {
  EXPECT_EQ(device_of("far", worker(0)).name(), "far:0");
  EXPECT_EQ(device_of("far", worker(1)).name(), "far:1");
  EXPECT_THAT([] { device_of("far", worker(4)); },
              ::testing::ThrowsMessage<InputError>(
                  ::testing::HasSubstr("trainer.device=far:4: this machine has 4 such devices")));
}

TEST(WorkerDeviceTest, ACardWithItsNumberIsTheOne) {
  EXPECT_EQ(device_of("far:0", worker(1)).name(), "far:0");
  EXPECT_TRUE(device_of("cpu", worker(1)).is_cpu());
}

// The optimizer is the host's work.
TEST(WorkerDeviceTest, TheHostWorksWithAllThreads) {
  EXPECT_EQ(device_of("far", worker(0), 3).pool().threads(), 3);
  EXPECT_EQ(Device::parse("far", 0).pool().threads(), runtime::available_cores());
}

}  // namespace
}  // namespace tlt::tests
