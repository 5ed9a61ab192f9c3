// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/row_table.h"

namespace tlt::ops::cuda {

RowKernels row_kernels() { return make_row_kernels(); }

}  // namespace tlt::ops::cuda
