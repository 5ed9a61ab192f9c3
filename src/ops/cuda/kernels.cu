// The kernels of a GPU, for the plug-in libtlt_cuda.so: nvcc -std=c++20 -fmad=false
// --expt-relaxed-constexpr. They know no framework.
//
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernel_table.h"

extern "C" const tlt::ops::DeviceKernels* tlt_device_kernels() {
  using tlt::ops::cuda::launch_stream;
  static const tlt::ops::DeviceKernels kernels = tlt::ops::cuda::make_kernels(
      [](void* stream) { launch_stream() = static_cast<cudaStream_t>(stream); });
  return &kernels;
}
