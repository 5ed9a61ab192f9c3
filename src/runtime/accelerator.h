// Accelerator: what a device other than the CPU has besides tensors and operations on them: graphs of
// launches, pinned host memory, its memory's size.
//
//   runtime::Accelerator& card = runtime::accelerator(device);
//   const std::unique_ptr<runtime::Graph> graph = card.capture(device.torch(), [&] { launch(); });
//   graph->replay();  // the same kernels with the same arguments, by one call of the driver
//
// Bodies     src/cuda/accelerator_cuda.cpp (in libtlt_cuda.so, cuda_plugin.h), and that of the far
//            device of tests (tests/support/far_device.cpp).
// Not here   waiting for a device (Device::synchronize()) and timing its work (DeviceTimer): c10 has
//            both for every device.
// Threading  the thread that drives the device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/device.h"

namespace tlt::runtime {

// Recorded launches. Memory that was allocated in capture() stays as long as the graph; what its
// launches read and write of other memory must stay as well.
class Graph {
 public:
  virtual ~Graph() = default;

  // Launches the recorded work on the device's current stream.
  virtual void replay() = 0;
};

struct DeviceMemory {
  int64_t free_bytes = 0;  // what the driver could still give; not what c10's allocator keeps
  int64_t total_bytes = 0;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;

  // Records what `body` launches, without running it. All graphs of a process share one memory pool:
  // tensors that `body` allocates may have the memory of those of another graph's body, so results
  // that outlive the next replay of any graph belong into tensors allocated outside.
  // Throws c10::Error if `body` copies to or from pageable host memory, or waits for the device; and
  // what `body` throws. The device takes work as before then.
  virtual std::unique_ptr<Graph> capture(at::Device device, const std::function<void()>& body) = 0;

  virtual DeviceMemory memory(at::Device device) = 0;

  // Host memory that the device copies from and to without the host's help. Not initialized.
  virtual at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) = 0;
};

// The accelerator of a device. REQUIRES: the device is not the CPU.
Accelerator& accelerator(const Device& device);

// From now on accelerator() returns this one for devices of the type. It stays until the program
// ends.
void register_accelerator(at::DeviceType type, Accelerator& accelerator);

}  // namespace tlt::runtime
