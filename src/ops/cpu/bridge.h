// From tensors to the raw memory of the CPU kernels.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "base/check.h"
#include "ops/cpu/kernels.h"

namespace tlt::ops {

inline Type kernel_type(const at::Tensor& x) {
  TLT_CHECK(x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat, "compute type ",
            c10::toString(x.scalar_type()));
  return x.scalar_type() == at::kBFloat16 ? Type::kBf16 : Type::kFloat;
}

inline int64_t unit_elements(at::ScalarType type) { return type == at::kBFloat16 ? 2 : 1; }

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// First byte of row `row` of a contiguous [rows, …] tensor.
inline char* row_pointer(const at::Tensor& x, int64_t row) {
  return static_cast<char*>(x.data_ptr()) +
         row * x.stride(0) * static_cast<int64_t>(x.element_size());
}

inline void check_rows(const at::Tensor& x, int64_t rows, int64_t columns, const char* what) {
  TLT_CHECK(x.dim() == 2 && x.size(0) == rows && x.size(1) == columns && x.is_contiguous(), what,
            " is [", x.dim() > 0 ? x.size(0) : -1, ", ", x.dim() > 1 ? x.size(1) : -1,
            "], expected [", rows, ", ", columns, "] contiguous");
}

}  // namespace tlt::ops
