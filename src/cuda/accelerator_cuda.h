// The accelerator of CUDA devices.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/accelerator.h"

namespace tlt::cuda {

runtime::Accelerator& accelerator();

}  // namespace tlt::cuda
