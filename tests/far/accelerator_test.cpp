// The accelerator of the far device: what host code may expect of that of CUDA.
//
// SPDX-License-Identifier: Apache-2.0
#include "runtime/accelerator.h"

#include <gmock/gmock.h>

#include "base/check.h"
#include "runtime/pinned_copies.h"
#include "tests/support/far_device.h"
#include "tests/support/test_device.h"

namespace tlt::tests {
namespace {

class AcceleratorTest : public ::testing::Test {
 protected:
  std::unique_ptr<runtime::Graph> capture(const std::function<void()>& body) {
    return runtime::accelerator(device_).capture(device_.torch(), body);
  }

  const Device device_ = Device::parse("far", /*threads=*/1);
  const at::Tensor x_ = device_.zeros({2, 2}, at::kFloat), sums_ = device_.zeros({2}, at::kFloat);
};

TEST_F(AcceleratorTest, AGraphRepeatsItsOperationsOnNewValues) {
  int runs = 0;
  at::Tensor inside;
  const auto graph = capture([&] {
    ++runs;
    inside = at::mm(x_, x_).exp().slice(0, 0, 1);
    sums_.copy_(at::softmax(x_, -1).add(inside).sum(at::IntArrayRef{0}));
  });
  EXPECT_TRUE(inside.isnan().all().item<bool>()) << "a value before the first replay";
  for (const float value : {0.0F, 1.0F}) {
    x_.fill_(value);
    const int64_t before = far_counts().operations;
    graph->replay();
    EXPECT_EQ(far_counts().operations - before, 6) << "mm, exp, softmax, add, sum, copy";
    EXPECT_FLOAT_EQ(inside[0][1].item<float>(), std::exp(2 * value * value));
    EXPECT_FLOAT_EQ(sums_[0].item<float>(), 1 + 2 * std::exp(2 * value * value));
  }
  EXPECT_EQ(runs, 1);
}

// Operations that are none of ATen.
TEST_F(AcceleratorTest, AGraphRepeatsKernels) {
  const auto add_one = [&] {
    far_launch([x = x_] { *static_cast<float*>(far_address(x.const_data_ptr())) += 1; });
  };
  const auto graph = capture(add_one);
  x_.zero_();
  graph->replay();
  graph->replay();
  EXPECT_EQ(x_[0][0].item<float>(), 2);
}

// As CUDA refuses it. Work after that is launched as before.
TEST_F(AcceleratorTest, CopiesAndWaitsAreErrorsInAGraph) {
  const at::Tensor host = at::ones({2, 2});
  EXPECT_THROW(capture([&] { x_.copy_(host); }), c10::Error);
  EXPECT_THROW(capture([&] { x_.cpu(); }), c10::Error);
  EXPECT_THROW(capture([&] { x_.sum().item<float>(); }), c10::Error);
  EXPECT_THROW(capture([&] { device_.synchronize(); }), c10::Error);
  EXPECT_THROW(capture([&] { capture([] {}); }), c10::Error);
  x_.copy_(host);
  EXPECT_EQ(x_.sum().item<float>(), 4);
}

TEST_F(AcceleratorTest, MemoryIsThatOfTheDevice) {
  runtime::Accelerator& accelerator = runtime::accelerator(device_);
  const int64_t before = accelerator.memory(device_.torch()).free_bytes;
  constexpr int64_t kBytes = int64_t{1} << 20;
  const at::Tensor more = device_.zeros({kBytes}, at::kByte);
  const runtime::DeviceMemory now = accelerator.memory(device_.torch());
  EXPECT_GE(before - now.free_bytes, kBytes);
  EXPECT_LT(now.free_bytes, now.total_bytes);
}

TEST_F(AcceleratorTest, PinnedCopiesKeepTheirOrderAndTheirValues) {
  runtime::PinnedCopies downloads(device_), uploads(device_);
  for (int round = 0; round < 3; ++round) {
    downloads.start(x_.fill_(2 * round));
    downloads.start(x_.fill_(2 * round + 1).view(-1).narrow(0, 0, 3));
    EXPECT_THROW(downloads.start(x_), Error) << "both buffers are in use";
    EXPECT_TRUE(at::equal(downloads.take(), at::full({4}, 2.0F * round)));
    EXPECT_TRUE(at::equal(downloads.take(), at::full({3}, 2.0F * round + 1)));
    EXPECT_THROW(downloads.take(), Error);
    std::vector<std::vector<at::Tensor>> there;
    const at::Tensor host = at::full({2, 2}, 1.0F), more = at::full({1 + round}, 5.0F);
    for (int i = 0; i < 5; ++i) {
      const int64_t before = far_counts().uploads;
      there.push_back(uploads.upload({host, more}));
      EXPECT_EQ(far_counts().uploads - before, 1);
      host.add_(1);
    }
    for (int i = 0; i < 5; ++i) {
      const auto of_round = static_cast<size_t>(i);
      EXPECT_TRUE(at::equal(there[of_round][0].cpu(), at::full({2, 2}, 1.0F + i)));
      EXPECT_TRUE(at::equal(there[of_round][1].cpu(), more));
    }
  }
  EXPECT_TRUE(uploads.upload({}).empty());
}

TEST_F(AcceleratorTest, PinnedMemoryIsOfTheHost) {
  const at::Tensor pinned = runtime::accelerator(device_).pinned({2, 2}, at::kFloat);
  EXPECT_TRUE(pinned.is_cpu());
  pinned.fill_(3);
  EXPECT_EQ(pinned.to(device_.torch()).sum().item<float>(), 12);
}

}  // namespace
}  // namespace tlt::tests
