// SPDX-License-Identifier: Apache-2.0
#include "runtime/pinned_copies.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <iterator>

#include "base/check.h"
#include "runtime/accelerator.h"

namespace tlt::runtime {

struct PinnedCopies::Buffer {
  explicit Buffer(at::DeviceType type) : copied(type) {}

  at::Tensor memory;     // undefined before the first copy
  int64_t elements = 0;  // of the last copy
  c10::Event copied;
};

PinnedCopies::PinnedCopies(const Device& device) : device_(device) {
  TLT_CHECK(!device.is_cpu(), "the CPU needs no copies");
  constexpr int kBuffers = 2;
  for (int i = 0; i < kBuffers; ++i) buffers_.emplace_back(device.torch().type());
}

PinnedCopies::PinnedCopies(PinnedCopies&&) noexcept = default;
PinnedCopies::~PinnedCopies() = default;

// Waits for the buffer's last copy, which may still read it.
PinnedCopies::Buffer& PinnedCopies::next_buffer(int64_t elements) {
  Buffer& buffer = buffers_[static_cast<size_t>(copies_++) % buffers_.size()];
  buffer.copied.synchronize();
  if (!buffer.memory.defined() || buffer.memory.numel() < elements)
    buffer.memory = accelerator(device_).pinned({elements}, at::kFloat);
  buffer.elements = elements;
  return buffer;
}

void PinnedCopies::record(Buffer& buffer) const {
  const at::Device device = device_.torch();
  buffer.copied.record(c10::impl::getDeviceGuardImpl(device.type())->getStream(device));
}

void PinnedCopies::start(const at::Tensor& values) {
  TLT_CHECK(copies_ - taken_ < std::ssize(buffers_), "take() was not called");
  Buffer& buffer = next_buffer(values.numel());
  buffer.memory.narrow(0, 0, buffer.elements).copy_(values.view(-1), /*non_blocking=*/true);
  record(buffer);
}

at::Tensor PinnedCopies::take() {
  TLT_CHECK(taken_ < copies_, "start() was not called");
  Buffer& buffer = buffers_[static_cast<size_t>(taken_++) % buffers_.size()];
  buffer.copied.synchronize();
  return buffer.memory.narrow(0, 0, buffer.elements);
}

std::vector<at::Tensor> PinnedCopies::upload(const std::vector<at::Tensor>& tensors) {
  TLT_CHECK(taken_ == copies_, "take() was not called");
  int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  if (elements == 0) return tensors;
  Buffer& buffer = next_buffer(elements);
  taken_ = copies_;
  at::Tensor there = device_.empty({elements}, at::kFloat);
  std::vector<at::Tensor> uploaded;
  int64_t done = 0;
  for (const at::Tensor& tensor : tensors) {
    buffer.memory.narrow(0, done, tensor.numel()).copy_(tensor.view(-1));
    uploaded.push_back(there.narrow(0, done, tensor.numel()).view(tensor.sizes()));
    done += tensor.numel();
  }
  there.copy_(buffer.memory.narrow(0, 0, elements), /*non_blocking=*/true);
  record(buffer);
  return uploaded;
}

}  // namespace tlt::runtime
