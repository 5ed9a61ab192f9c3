// The far device: a device that behaves like a GPU on a machine without one, for tests.
//
// Its memory is the host's, but its addresses are not valid ones: a host access to a tensor of it is
// a segmentation fault with a stack, never a silently right value. Operations run ATen's CPU kernels
// on the real addresses, and are counted. New memory is filled with NaN. A tensor of the CPU among
// the arguments of an operation on the device is an error, as it is on CUDA; so is an operation that
// CUDA computes in any order (index_add_).
//
// Products of matrices, softmax and the nonlinear functions are computed by loops of its own, one
// element after the other in order of the index: like the batch-invariant kernels of a GPU, a row's
// result depends on that row alone. So the invariants hold here bit by bit, and where one does not,
// the code that a GPU would run is at fault.
//
// The kernels of our own are those of a GPU, over emulated blocks (ops/cuda/kernels_emulated.h).
//
// Its graphs (runtime/accelerator.h) record operations and repeat them without the code around them.
// Unlike CUDA it also runs them when it records them; new tensors of a graph are NaN until the first
// replay. A copy from or to the host and a wait are errors meanwhile.
//
// A non-blocking copy to pinned memory (runtime/accelerator.h) gives it NaN until the host waits for
// the copy; one from pinned memory is an error if the host changes the memory before that.
//
// A program that this file is linked into has the device "far" (runtime::Device::parse); there are
// kFarDevices of them. No other program knows the name.
//
// Threading  one thread drives the device, as any.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace tlt::tests {

inline constexpr int kFarDevices = 4;

struct FarCounts {
  int64_t operations = 0;        // kernels, copies on the device included
  int64_t uploads = 0;           // copies from the host to the device
  int64_t downloads = 0;         // copies to the host, and single values that the host reads
  int64_t downloaded_bytes = 0;  // of the copies to the host
  int64_t synchronizations = 0;  // times the host waited for the device without a copy

  bool operator==(const FarCounts&) const = default;
};

// Since the start of the program.
const FarCounts& far_counts();

// Non-blocking copies from and to pinned memory that the host has not waited for.
int64_t far_copies_under_way();

// Runs and counts one more operation, which is no operation of ATen: `work` on real addresses
// (far_address()). A graph that is being captured keeps `work` and what it holds.
void far_launch(const std::function<void()>& work);
// The host's address of memory of the device.
void* far_address(const void* address);

// From now on the sum of a product of `rows` rows begins with its element `first`, as of a library
// that chooses its kernel by the sizes of a call. Null: with the first, as initially.
void set_far_sum_order(std::function<int64_t(int64_t rows, int64_t sum)> first);

// From now on an operation takes this long on the device, whose work the host does not wait for
// until it copies a tensor or synchronizes. Initially 0.
void set_far_seconds_per_operation(double seconds);

}  // namespace tlt::tests
