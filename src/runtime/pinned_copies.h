// PinnedCopies: copies of float32 values between a device and the host that run while the host works
// on other values, through two buffers of pinned memory used in turn.
//
//   PinnedCopies downloads(device);
//   downloads.start(first);                        // tensors of the device
//   downloads.start(second);
//   const at::Tensor values = downloads.take();    // waits for the first only
//
// Owns       the buffers, each as large as its largest copy so far.
// Threading  the thread that drives the device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/device.h"

namespace tlt::runtime {

class PinnedCopies {
 public:
  // REQUIRES: the device is not the CPU.
  explicit PinnedCopies(const Device& device);
  PinnedCopies(PinnedCopies&&) noexcept;
  ~PinnedCopies();

  // Starts a copy of contiguous values to the host. REQUIRES: at most one other is started and not
  // taken.
  void start(const at::Tensor& values);
  // Waits for the first copy that was started and not taken. Its values [elements] are valid until
  // the next start().
  at::Tensor take();

  // Starts one copy to the device of these contiguous tensors, which may change from now on. Returns
  // them there. REQUIRES: no copy to the host is started and not taken.
  std::vector<at::Tensor> upload(const std::vector<at::Tensor>& tensors);

 private:
  struct Buffer;

  Buffer& next_buffer(int64_t elements);
  void record(Buffer& buffer) const;

  Device device_;
  std::vector<Buffer> buffers_;
  int64_t copies_ = 0;  // started
  int64_t taken_ = 0;
};

}  // namespace tlt::runtime
