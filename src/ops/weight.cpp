// SPDX-License-Identifier: Apache-2.0
#include "ops/weight.h"

#include <ATen/ATen.h>

#include <cstring>

#include "ops/cpu/bridge.h"

namespace tlt::ops {
namespace {

// Calls visit(source element of row-major values, element of a panel) for a row and all its
// columns.
template <class Visit>
void for_row(int64_t row, int64_t columns, int64_t u, const Visit& visit) {
  const int64_t panel = row / Weight::kPanel, lane = row % Weight::kPanel;
  const int64_t base = panel * columns * Weight::kPanel + lane * u;
  for (int64_t k = 0; k < columns; ++k) visit(k, base + (k / u) * Weight::kPanel * u + k % u);
}

template <class From, class To>
void pack_row(const From* from, To* storage, int64_t row, int64_t columns, int64_t u) {
  for_row(row, columns, u, [&](int64_t k, int64_t at) { storage[at] = static_cast<To>(from[k]); });
}

template <class T>
void unpack_row(const T* storage, T* to, int64_t row, int64_t columns, int64_t u) {
  for_row(row, columns, u, [&](int64_t k, int64_t at) { to[k] = storage[at]; });
}

// Sixteen rows a task: they share the cache lines of a panel.
constexpr int64_t kRowsPerTask = 16;

template <class Body>
void for_rows(const Device& device, int64_t rows, const Body& body) {
  device.pool().run(divide_up(rows, kRowsPerTask), [&](int64_t task) {
    for (int64_t row = task * kRowsPerTask; row < std::min(rows, (task + 1) * kRowsPerTask); ++row)
      body(row);
  });
}

}  // namespace

Weight::Weight(const Device& device, int64_t rows, int64_t columns, at::ScalarType type)
    : rows_(rows), columns_(columns), type_(type) {
  TLT_CHECK(rows > 0 && columns > 0 && columns % 2 == 0, "weight [", rows, ", ", columns, "]");
  const int64_t u = unit_elements(type);
  storage_ = device.is_cpu()
                 ? device.lasting_zeros({divide_up(rows, kPanel), columns / u, kPanel, u}, type)
                 : device.lasting_zeros({rows, columns}, type);
}

void Weight::assign(const Device& device, const at::Tensor& values, int64_t first_row) {
  TLT_CHECK(values.dim() == 2 && values.size(1) == columns_ && first_row + values.size(0) <= rows_,
            "assign [", values.size(0), ", ", values.size(-1), "] at row ", first_row, " of [",
            rows_, ", ", columns_, "]");
  if (!device.is_cpu()) {
    storage_.narrow(0, first_row, values.size(0)).copy_(values);
    return;
  }
  const at::Tensor from = values.contiguous();
  const bool wide = from.scalar_type() == at::kFloat;
  TLT_CHECK(wide || from.scalar_type() == type_, "assign from ", c10::toString(from.scalar_type()));
  for_rows(device, from.size(0), [&](int64_t row) {
    const void* source = row_pointer(from, row);
    if (type_ == at::kFloat)
      pack_row(static_cast<const float*>(source), storage_.data_ptr<float>(), first_row + row,
               columns_, 1);
    else if (wide)
      pack_row(static_cast<const float*>(source), storage_.data_ptr<at::BFloat16>(),
               first_row + row, columns_, 2);
    else
      pack_row(static_cast<const at::BFloat16*>(source), storage_.data_ptr<at::BFloat16>(),
               first_row + row, columns_, 2);
  });
}

at::Tensor Weight::values(const Device& device, int64_t first_row, int64_t n) const {
  TLT_CHECK(first_row >= 0 && n >= 0 && first_row + n <= rows_, "rows ", first_row, " + ", n,
            " of ", rows_);
  if (!device.is_cpu()) return storage_.narrow(0, first_row, n).clone();
  at::Tensor out = device.empty({n, columns_}, type_);
  for_rows(device, n, [&](int64_t row) {
    if (type_ == at::kFloat)
      unpack_row(storage_.data_ptr<float>(), out.data_ptr<float>() + row * columns_,
                 first_row + row, columns_, 1);
    else
      unpack_row(storage_.data_ptr<at::BFloat16>(), out.data_ptr<at::BFloat16>() + row * columns_,
                 first_row + row, columns_, 2);
  });
  return out;
}

void Weight::gather(const Device& device, const at::Tensor& tokens, at::Tensor& out) const {
  const int64_t count = tokens.size(0);
  TLT_CHECK(out.dim() == 2 && out.size(0) == count && out.size(1) == columns_ && out.stride(1) == 1,
            "gathered rows are [", out.size(0), ", ", out.size(-1), "], expected [", count, ", ",
            columns_, "]");
  if (!device.is_cpu()) {
    out.copy_(storage_.index_select(0, tokens.to(at::kLong)));
    return;
  }
  const int32_t* ids = tokens.data_ptr<int32_t>();
  for_rows(device, count, [&](int64_t i) {
    TLT_CHECK(ids[i] >= 0 && ids[i] < rows_, "token ", ids[i], " of a vocabulary of ", rows_);
    if (type_ == at::kFloat)
      unpack_row(storage_.data_ptr<float>(), out.data_ptr<float>() + i * out.stride(0), ids[i],
                 columns_, 1);
    else
      unpack_row(storage_.data_ptr<at::BFloat16>(),
                 out.data_ptr<at::BFloat16>() + i * out.stride(0), ids[i], columns_, 2);
  });
}

}  // namespace tlt::ops
