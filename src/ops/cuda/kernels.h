// DeviceKernels: the kernels of a device other than the CPU, as functions on its memory that launch
// on its current stream and do not wait.
//
// One source makes two tables (kernel_table.h): kernels.cu for GPUs, in the plug-in libtlt_cuda.so,
// and kernels_emulated.cpp for the far device of tests. An operation (ops/*.cpp) asks
// device_kernels() and runs ATen's body where a device has no table.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/attention_parameters.h"
#include "ops/cuda/row_parameters.h"

namespace c10 {
enum class DeviceType : int8_t;
struct Device;
}  // namespace c10

namespace tlt::ops {

struct DeviceKernels {
  // Of the launches of this host thread from now on: a cudaStream_t.
  void (*use_stream)(void* stream) = nullptr;
  cuda::AttentionKernels attention;
  cuda::RowKernels rows;
};

// The kernels of a device, for its current stream; null: it has none. A launch before the next call
// goes to that stream.
const DeviceKernels* device_kernels(const c10::Device& device);

// From now on devices of this type have these kernels, which are never freed. Null: none.
void set_device_kernels(c10::DeviceType type, const DeviceKernels* kernels);

}  // namespace tlt::ops
