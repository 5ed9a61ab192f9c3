// make_kernels: the table of all kernels, whose launches are those of the compiler that sees this:
// nvcc in kernels.cu, g++ in kernels_emulated.cpp. Included by these two only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/attention_table.h"
#include "ops/cuda/kernels.h"

namespace tlt::ops::cuda {

inline DeviceKernels make_kernels(void (*use_stream)(void* stream)) {
  DeviceKernels kernels;
  kernels.use_stream = use_stream;
  kernels.attention = attention_kernels();
  kernels.rows = row_kernels();
  return kernels;
}

}  // namespace tlt::ops::cuda
