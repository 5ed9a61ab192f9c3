// emulated_kernels: the kernels of a GPU over emulated blocks (emulated_block.h), for tests.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/kernels.h"

namespace tlt::ops {

const DeviceKernels& emulated_kernels();

}  // namespace tlt::ops
