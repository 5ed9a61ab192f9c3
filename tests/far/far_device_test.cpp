// The far device itself: it notices what a GPU would not forgive.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/far_device.h"

#include <c10/core/Event.h>
#include <gmock/gmock.h>

#include <csignal>

#include "base/check.h"
#include "base/clock.h"
#include "runtime/accelerator.h"
#include "tests/support/tensors.h"
#include "tests/support/test_device.h"

namespace tlt::tests {
namespace {

using ::testing::HasSubstr;

Device far_device() { return Device::parse("far", /*threads=*/1); }

FarCounts counts_of(const std::function<void()>& work) {
  const FarCounts before = far_counts();
  work();
  const FarCounts& now = far_counts();
  return {.operations = now.operations - before.operations,
          .uploads = now.uploads - before.uploads,
          .downloads = now.downloads - before.downloads,
          .synchronizations = now.synchronizations - before.synchronizations};
}

TEST(FarDeviceTest, HostAccessIsASegmentationFault) {
  const at::Tensor x = far_device().zeros({4}, at::kFloat);
  EXPECT_EXIT(
      {
        volatile float value = x.data_ptr<float>()[0];
        (void)value;
      },
      ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ((x + 2).sum().item<float>(), 8);
}

TEST(FarDeviceTest, NewMemoryIsNotZero) {
  EXPECT_TRUE(far_device().empty({3}, at::kFloat).isnan().all().item<bool>());
}

TEST(FarDeviceTest, ViewsAndInPlaceOperationsAreOfTheSameMemory) {
  const at::Tensor x = far_device().zeros({4, 6}, at::kFloat);
  x.narrow(0, 1, 2).select(1, 3).add_(5);
  x.view({-1}).slice(0, 0, 24, 12).mul_(2).sub_(1);
  const at::Tensor host = x.cpu();
  EXPECT_EQ(host[1][3].item<float>(), 5);
  EXPECT_EQ(host[2][0].item<float>(), -1);
  EXPECT_EQ(host.sum().item<float>(), 8);
}

TEST(FarDeviceTest, CountsOperationsAndCopies) {
  const at::Tensor host = at::ones({2, 3}, at::kFloat);
  at::Tensor far;
  EXPECT_EQ(counts_of([&] { far = host.to(far_device().torch()); }), (FarCounts{.uploads = 1}));
  EXPECT_EQ(counts_of([&] { far = far.add(1).t(); }), (FarCounts{.operations = 1}));
  EXPECT_EQ(counts_of([&] { far.contiguous(); }), (FarCounts{.operations = 1}));
  EXPECT_EQ(counts_of([&] { far.cpu(); }), (FarCounts{.downloads = 1}));
  EXPECT_EQ(counts_of([&] { far[0][1].item<float>(); }), (FarCounts{.downloads = 1}));
  EXPECT_EQ(counts_of([&] { at::equal(far, far); }), (FarCounts{.operations = 1, .downloads = 1}));
  EXPECT_EQ(counts_of([] { far_device().synchronize(); }), (FarCounts{.synchronizations = 1}));
}

// A copy that the host does not wait for ends with the event after it.
TEST(FarDeviceTest, PinnedMemoryIsUnknownUntilTheHostWaits) {
  const Device device = far_device();
  device.synchronize();
  const at::Tensor pinned = runtime::accelerator(device).pinned({2, 3}, at::kFloat),
                   far = device.zeros({3}, at::kFloat).add_(2);
  c10::Event first(device.torch().type());
  pinned[0].copy_(far, /*non_blocking=*/true);
  first.record(c10::Stream(c10::Stream::DEFAULT, device.torch()));
  far.add_(1);
  pinned[1].copy_(far, /*non_blocking=*/true);
  EXPECT_TRUE(pinned.isnan().all().item<bool>());
  first.synchronize();
  EXPECT_EQ(far_copies_under_way(), 1);
  EXPECT_EQ(pinned[0].sum().item<float>(), 6);
  EXPECT_TRUE(pinned[1].isnan().all().item<bool>());
  device.synchronize();
  EXPECT_EQ(pinned[1].sum().item<float>(), 9);

  far.copy_(pinned[0], /*non_blocking=*/true);
  pinned.fill_(7);
  EXPECT_THROW(device.synchronize(), c10::Error) << "changed during the copy";
  at::Tensor pageable = at::zeros({3});
  pageable.copy_(far, /*non_blocking=*/true);
  EXPECT_EQ(pageable.sum().item<float>(), 6) << "waits, as CUDA does";
}

TEST(FarDeviceTest, TensorsOfAnotherDeviceThrow) {
  const at::Tensor far = far_device().zeros({2}, at::kFloat), host = at::ones({2}, at::kFloat);
  EXPECT_THROW(at::add(far, host), c10::Error);
  const at::Tensor other = Device::parse("far:1", 1).zeros({2}, at::kFloat);
  EXPECT_EQ(other.device().index(), 1);
  EXPECT_THROW(at::add(far, other), c10::Error);
  EXPECT_EQ(at::add(other, at::ones({}, at::kFloat)).device().index(), 1);
  const at::Tensor matrix = other.view({1, 2});
  EXPECT_EQ(at::mm(matrix.t(), matrix).device().index(), 1);
  EXPECT_EQ(at::softmax(at::silu(other), -1).device().index(), 1);
}

// Those whose CUDA kernels add with atomics.
TEST(FarDeviceTest, OperationsWithoutAReproducibleOrderThrow) {
  const Device device = far_device();
  at::Tensor sums = device.zeros({3}, at::kFloat);
  const at::Tensor index = device.zeros({2}, at::kLong), values = device.zeros({2}, at::kFloat);
  EXPECT_THROW(sums.index_add_(0, index, values), c10::Error);
  EXPECT_THROW(sums.scatter_add_(0, index, values), c10::Error);
  EXPECT_NO_THROW(sums.index_put_({index}, values, /*accumulate=*/true));
}

TEST(FarDeviceTest, RowsOfAProductDoNotDependOnOtherRows) {
  const at::Device far = far_device().torch();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random_tensor({40, 65}, type, 1).to(far),
                     w = random_tensor({33, 65}, type, 2).to(far);
    const at::Tensor all = at::matmul(x, w.t());
    EXPECT_TRUE(tensors_near(all, at::matmul(x.cpu().to(at::kDouble), w.cpu().to(at::kDouble).t()),
                             tolerance(type)));
    for (const int64_t rows : {1, 3, 17})
      EXPECT_TRUE(tensors_equal(at::matmul(x.narrow(0, 5, rows), w.t()), all.narrow(0, 5, rows)));
  }
}

TEST(FarDeviceTest, LaunchedWorkTakesItsTime) {
  constexpr double kSeconds = 0.02;
  const Device device = far_device();
  const at::Tensor x = device.zeros({2}, at::kFloat);
  set_far_seconds_per_operation(kSeconds);
  const Stopwatch watch;
  for (int i = 0; i < 3; ++i) x.add_(1);
  const double launched = watch.seconds();
  device.synchronize();
  const double done = watch.seconds();
  set_far_seconds_per_operation(0);
  EXPECT_LT(launched, 2 * kSeconds);
  EXPECT_GE(done, 3 * kSeconds);
}

TEST(FarDeviceTest, IsKnownByItsName) {
  EXPECT_EQ(Device::parse("far:1", 1).name(), "far:1");
  EXPECT_FALSE(far_device().is_cpu());
  EXPECT_THAT([] { Device::parse("far:4", 1, "trainer.device"); },
              ::testing::ThrowsMessage<InputError>(
                  HasSubstr("trainer.device=far:4: this machine has 4 such devices")));
  EXPECT_THROW(Device::parse("far:", 1), InputError);
}

}  // namespace
}  // namespace tlt::tests
