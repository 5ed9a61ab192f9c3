// SPDX-License-Identifier: Apache-2.0
#include "ops/device_product.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"
#include "ops/aten_bodies.h"
#include "ops/device_rows.h"
#include "ops/padded_rows.h"

namespace tlt::ops {
namespace {

// Elements of a call's result: of more than 512 rows only as many as need 64 MB in float32.
constexpr int64_t kLargestResult = int64_t{1} << 24;
constexpr int64_t kMostRows = 4 * kMostPaddedRows;

int64_t most_rows(int64_t columns) {
  int64_t rows = kMostPaddedRows;
  while (rows < kMostRows && 2 * rows * columns <= kLargestResult) rows *= 2;
  return rows;
}

// Rows of the next call when `left` are left.
int64_t rows_of_call(int64_t left, int64_t most) {
  int64_t rows = most;
  while (rows > kMostPaddedRows && rows > left) rows /= 2;
  return std::min(rows, left);
}

// x [M, R] with rows of any content after its own: rows do not depend on each other.
at::Tensor with_rows(const at::Tensor& x, int64_t rows) {
  if (x.size(0) == rows) return x;
  const int64_t columns = x.size(1), end = x.storage_offset() + rows * columns;
  const auto bytes = static_cast<int64_t>(x.storage().nbytes());
  if (x.is_contiguous() && end * x.element_size() <= bytes)  // the buffers of a pass have room
    return x.as_strided({rows, columns}, {columns, 1});
  at::Tensor padded = at::empty({rows, columns}, x.options());
  padded.narrow(0, 0, x.size(0)).copy_(x);
  return padded;
}

// The slices of x right, [S, M, C] float32.
at::Tensor slices_of(const at::Tensor& x, const at::Tensor& right, int64_t slices) {
  const int64_t m = x.size(0), sum = x.size(1), columns = right.size(1);
  TLT_CHECK(sum % slices == 0, "a sum of ", sum, " in ", slices, " slices");
  const at::Tensor a = x.view({m, slices, sum / slices}).transpose(0, 1),
                   b = right.unflatten(0, {slices, sum / slices});
  at::Tensor out = at::empty({slices, m, columns}, x.options().dtype(at::kFloat));
  return x.scalar_type() == at::kFloat ? at::bmm_out(out, a, b)
                                       : at::bmm_out(out, a, b, at::kFloat);
}

// out = the slices in order, then bias and residual; rounded once. Rows after out's are padding.
void add_slices(const at::Tensor& slices, at::Tensor& out, const LinearExtras& extras) {
  TLT_CHECK(out.is_contiguous() && (!extras.residual || extras.residual->is_contiguous()));
  if (const DeviceRows* rows = device_rows(out.device()))
    return rows->sum_slices(slices, extras, out);
  aten::add_slices(slices, extras, out);
}

void multiply(const at::Tensor& x, const at::Tensor& right, at::Tensor& out) {
  if (out.scalar_type() == x.scalar_type())
    at::mm_out(out, x, right);
  else
    at::mm_out(out, x, right, out.scalar_type());
}

// One call. What it calls depends on the plan and on which extras there are, not on the rows.
void product_of_rows(const DeviceProduct& p, at::Tensor& out, const LinearExtras& extras) {
  const int64_t m = out.size(0), least = std::max(m, p.plan.least_rows);
  const int64_t rows = least <= kMostPaddedRows ? padded_rows(least) : m;
  const at::Tensor x = with_rows(p.x, rows);
  const bool rounds_by_itself =
      !extras.bias && (!extras.residual || out.scalar_type() == x.scalar_type());
  if (p.plan.slices > 1 || !rounds_by_itself)
    return add_slices(slices_of(x, p.right, p.plan.slices), out, extras);
  at::Tensor all = rows == m ? out : at::empty({rows, out.size(1)}, out.options());
  at::Tensor own = all.narrow(0, 0, m);
  if (extras.residual) {
    if (rows != m) own.copy_(*extras.residual);
    at::addmm_out(all, rows == m ? *extras.residual : all, x, p.right);
  } else {
    multiply(x, p.right, all);
  }
  if (rows != m) out.copy_(own);
}

}  // namespace

std::vector<int64_t> row_counts(int64_t columns) {
  std::vector<int64_t> counts = all_padded_rows();
  for (int64_t rows = 2 * kMostPaddedRows; rows <= most_rows(columns); rows *= 2)
    counts.push_back(rows);
  return counts;
}

void device_product(const DeviceProduct& product, at::Tensor& out, const LinearExtras& extras) {
  const auto& [x, right, plan] = product;
  const int64_t m = x.size(0), most = most_rows(right.size(1));
  for (int64_t first = 0, rows = 0; first < m; first += rows) {
    rows = rows_of_call(m - first, most);
    if (rows == m) return product_of_rows(product, out, extras);
    const at::Tensor part = x.narrow(0, first, rows);
    at::Tensor part_out = out.narrow(0, first, rows), residual;
    LinearExtras part_extras = extras;
    if (extras.residual) {
      residual = extras.residual->narrow(0, first, rows);
      part_extras.residual = &residual;
    }
    product_of_rows({part, right, plan}, part_out, part_extras);
  }
}

void add_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& sum) {
  if (a.scalar_type() == at::kFloat)
    at::addmm_out(sum, sum, a, b);
  else
    at::addmm_out(sum, sum, a, b, at::kFloat);
}

}  // namespace tlt::ops
