// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels_emulated.h"

#include "ops/cuda/kernel_table.h"

namespace tlt::ops {

const DeviceKernels& emulated_kernels() {
  static const DeviceKernels kernels = cuda::make_kernels(/*use_stream=*/nullptr);
  return kernels;
}

}  // namespace tlt::ops
