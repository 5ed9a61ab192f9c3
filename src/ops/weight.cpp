// SPDX-License-Identifier: Apache-2.0
#include "ops/weight.h"

#include <ATen/ATen.h>

#include <cstring>

#include "ops/aten_bodies.h"
#include "ops/cpu/bridge.h"
#include "ops/product_probe.h"

namespace tlt::ops {
namespace {

// Calls visit(index in row-major values, index in a panel) for all columns of a row.
template <class T, class Visit>
void for_row(int64_t row, int64_t columns, const Visit& visit) {
  const int64_t u = std::is_same_v<T, at::BFloat16> ? 2 : 1;
  const int64_t panel = row / Weight::kPanel, lane = row % Weight::kPanel;
  const int64_t base = panel * columns * Weight::kPanel + lane * u;
  for (int64_t k = 0; k < columns; ++k) visit(k, base + (k / u) * Weight::kPanel * u + k % u);
}

template <class From, class To>
void pack_row(const From* from, To* storage, int64_t row, int64_t columns) {
  for_row<To>(row, columns, [&](int64_t k, int64_t at) { storage[at] = static_cast<To>(from[k]); });
}

template <class T>
void unpack_row(const T* storage, T* to, int64_t row, int64_t columns) {
  for_row<T>(row, columns, [&](int64_t k, int64_t at) { to[k] = storage[at]; });
}

// Sixteen rows per task: they share the cache lines of a panel.
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
  if (!device.is_cpu()) plans_ = plan_products(storage_);
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
               columns_);
    else if (wide)
      pack_row(static_cast<const float*>(source), storage_.data_ptr<at::BFloat16>(),
               first_row + row, columns_);
    else
      pack_row(static_cast<const at::BFloat16*>(source), storage_.data_ptr<at::BFloat16>(),
               first_row + row, columns_);
  });
}

void Weight::assign_columns(const Weight& whole, int64_t first_column) {
  TLT_CHECK(whole.rows_ == rows_ && whole.type_ == type_ && first_column % 2 == 0 &&
                first_column + columns_ <= whole.columns_,
            "columns ", first_column, " + ", columns_, " of [", whole.rows_, ", ", whole.columns_,
            "]");
  const int64_t unit = storage_.dim() == 4 ? unit_elements(type_) : 1;
  storage_.copy_(whole.storage_.narrow(1, first_column / unit, columns_ / unit));
}

at::Tensor Weight::values(const Device& device, int64_t first_row, int64_t n) const {
  TLT_CHECK(first_row >= 0 && n >= 0 && first_row + n <= rows_, "rows ", first_row, " + ", n,
            " of ", rows_);
  if (!device.is_cpu()) return storage_.narrow(0, first_row, n).clone();
  at::Tensor out = device.empty({n, columns_}, type_);
  for_rows(device, n, [&](int64_t row) {
    if (type_ == at::kFloat)
      unpack_row(storage_.data_ptr<float>(), out.data_ptr<float>() + row * columns_,
                 first_row + row, columns_);
    else
      unpack_row(storage_.data_ptr<at::BFloat16>(), out.data_ptr<at::BFloat16>() + row * columns_,
                 first_row + row, columns_);
  });
  return out;
}

void Weight::gather(const Device& device, std::span<const int32_t> tokens, at::Tensor& out) const {
  check_rows(out, std::ssize(tokens), columns_, "gathered rows");
  if (!device.is_cpu()) {
    out.copy_(storage_.index_select(0, aten::indices(tokens, device)));
    return;
  }
  for_rows(device, std::ssize(tokens), [&](int64_t i) {
    const int64_t token = tokens[static_cast<size_t>(i)];
    TLT_CHECK(token >= 0 && token < rows_, "token ", token, " of a vocabulary of ", rows_);
    if (type_ == at::kFloat)
      unpack_row(storage_.data_ptr<float>(), out.data_ptr<float>() + i * columns_, token, columns_);
    else
      unpack_row(storage_.data_ptr<at::BFloat16>(), out.data_ptr<at::BFloat16>() + i * columns_,
                 token, columns_);
  });
}

}  // namespace tlt::ops
