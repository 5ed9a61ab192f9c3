// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "ops/aten_bodies.h"
#include "ops/cpu/bridge.h"
#include "ops/device_rows.h"

namespace tlt::ops {
namespace {

// Elements of a task of a norm: about a microsecond of work. With fewer, starting another thread
// takes longer than the work itself.
constexpr int64_t kTaskElements = 8192;
// A constant, because gradients of norm weights are summed by block: the result must not depend on
// the number of threads.
constexpr int64_t kNormBlock = 64;

template <class Body>
void for_blocks(const Device& device, int64_t rows, int64_t block_rows, const Body& body) {
  device.pool().run(divide_up(rows, block_rows), [&](int64_t block) {
    const int64_t first = block * block_rows;
    body(first, std::min(block_rows, rows - first));
  });
}

// element_cost: cost of an element in units of a norm's.
int64_t rows_of_task(int64_t columns, int64_t element_cost = 1) {
  return std::max<int64_t>(1, kTaskElements / (columns * element_cost));
}
constexpr int64_t kSwigluCost = 4;

}  // namespace

void rms_norm(const Device& device, const at::Tensor& x, const at::Tensor& weight, double epsilon,
              at::Tensor& out) {
  if (const DeviceRows* own = device_rows(device)) return own->rms_norm(x, weight, epsilon, out);
  if (!device.is_cpu()) return aten::rms_norm(x, weight, epsilon, out);
  const int64_t rows = x.size(0), columns = x.size(1);
  check_rows(x, rows, columns, "norm input");
  check_rows(out, rows, columns, "norm output");
  const Kernels& kernels = cpu_kernels();
  for_blocks(device, rows, rows_of_task(columns), [&](int64_t first, int64_t count) {
    kernels.rms_norm(kernel_type(x), {.x = row_pointer(x, first),
                                      .weight = weight.data_ptr<float>(),
                                      .epsilon = static_cast<float>(epsilon),
                                      .rows = count,
                                      .columns = columns,
                                      .out = row_pointer(out, first)});
  });
}

void rms_norm_backward(const Device& device, const RmsNormGradient& gradient) {
  if (const DeviceRows* own = device_rows(device)) return own->rms_norm_backward(gradient);
  if (!device.is_cpu()) return aten::rms_norm_backward(gradient);
  const at::Tensor &dy = gradient.dy, &x = gradient.x;
  const int64_t rows = x.size(0), columns = x.size(1);
  check_rows(dy, rows, columns, "norm gradient");
  const Kernels& kernels = cpu_kernels();
  const at::Tensor parts = at::zeros({divide_up(rows, kNormBlock), columns}, at::kFloat);
  for_blocks(device, rows, kNormBlock, [&](int64_t first, int64_t count) {
    kernels.rms_norm_backward(kernel_type(x),
                              {.dy = row_pointer(dy, first),
                               .x = row_pointer(x, first),
                               .weight = gradient.weight.data_ptr<float>(),
                               .epsilon = static_cast<float>(gradient.epsilon),
                               .rows = count,
                               .columns = columns,
                               .dx = row_pointer(gradient.dx, first),
                               .dweight = parts.data_ptr<float>() + first / kNormBlock * columns});
  });
  if (gradient.dweight.defined())
    kernels.add_columns(Type::kFloat, {.x = parts.data_ptr(),
                                       .stride = columns,
                                       .rows = parts.size(0),
                                       .count = columns,
                                       .out = gradient.dweight.data_ptr<float>()});
}

void swiglu(const Device& device, const at::Tensor& gate_up, at::Tensor& out) {
  if (const DeviceRows* own = device_rows(device)) return own->swiglu(gate_up, out);
  if (!device.is_cpu()) return aten::swiglu(gate_up, out);
  const int64_t rows = out.size(0), columns = out.size(1);
  check_rows(gate_up, rows, 2 * columns, "gate and up");
  const Kernels& kernels = cpu_kernels();
  for_blocks(device, rows, rows_of_task(columns, kSwigluCost), [&](int64_t first, int64_t count) {
    kernels.swiglu(kernel_type(out), {.gate_up = row_pointer(gate_up, first),
                                      .rows = count,
                                      .columns = columns,
                                      .count = columns,
                                      .out = row_pointer(out, first)});
  });
}

void swiglu_backward(const Device& device, const at::Tensor& d_out, const at::Tensor& gate_up,
                     at::Tensor& d_gate_up) {
  if (const DeviceRows* own = device_rows(device))
    return own->swiglu_backward(d_out, gate_up, d_gate_up);
  if (!device.is_cpu()) return aten::swiglu_backward(d_out, gate_up, d_gate_up);
  const int64_t rows = d_out.size(0), columns = d_out.size(1);
  check_rows(d_gate_up, rows, 2 * columns, "gate and up gradient");
  const Kernels& kernels = cpu_kernels();
  for_blocks(device, rows, rows_of_task(columns, kSwigluCost), [&](int64_t first, int64_t count) {
    kernels.swiglu_backward(kernel_type(d_out), {.d_out = row_pointer(d_out, first),
                                                 .gate_up = row_pointer(gate_up, first),
                                                 .rows = count,
                                                 .columns = columns,
                                                 .d_gate_up = row_pointer(d_gate_up, first)});
  });
}

void embed(const Device& device, const at::Tensor& table, std::span<const int32_t> tokens,
           at::Tensor& out) {
  if (!device.is_cpu()) {
    out.copy_(table.index_select(0, aten::indices(tokens, device)));
    return;
  }
  const size_t bytes = static_cast<size_t>(table.stride(0) * table.element_size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    TLT_CHECK(tokens[i] >= 0 && tokens[i] < table.size(0), "token ", tokens[i],
              " of a vocabulary of ", table.size(0));
    std::memcpy(row_pointer(out, static_cast<int64_t>(i)), row_pointer(table, tokens[i]), bytes);
  }
}

void embed_backward(const Device& device, const at::Tensor& dx, std::span<const int32_t> tokens,
                    at::Tensor& dtable) {
  if (const DeviceRows* own = device_rows(device)) return own->embed_backward(dx, tokens, dtable);
  if (!device.is_cpu()) {
    // Not index_add_(), which adds in any order on CUDA; this sorts the tokens.
    dtable.index_put_({aten::indices(tokens, device)}, dx.to(at::kFloat), /*accumulate=*/true);
    return;
  }
  const Kernels& kernels = cpu_kernels();
  for (size_t i = 0; i < tokens.size(); ++i)
    kernels.add_to_float(kernel_type(dx), row_pointer(dx, static_cast<int64_t>(i)), dx.size(1),
                         dtable.data_ptr<float>() + tokens[i] * dtable.stride(0));
}

void gather_rows(const Device& device, const at::Tensor& x, std::span<const int64_t> rows,
                 at::Tensor& out) {
  const int64_t count = std::ssize(rows), columns = x.size(1);
  check_rows(out, count, columns, "gathered rows");
  TLT_CHECK(x.scalar_type() == out.scalar_type());
  if (const DeviceRows* own = device_rows(device)) return own->gather_rows(x, rows, out);
  if (device.is_cpu() && x.is_contiguous()) {  // a tenth of the time of index_select()
    const auto bytes = static_cast<size_t>(columns) * x.element_size();
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(row_pointer(out, i), row_pointer(x, rows[static_cast<size_t>(i)]), bytes);
    return;
  }
  // Not by index_select(), whose rows would be a copy to the device: by runs of consecutive rows.
  for (int64_t first = 0, end = 0; first < count; first = end) {
    const int64_t row = rows[static_cast<size_t>(first)];
    for (end = first + 1; end < count && rows[static_cast<size_t>(end)] == row + end - first;)
      ++end;
    out.narrow(0, first, end - first).copy_(x.narrow(0, row, end - first));
  }
}

void put_columns(const Device& device, const at::Tensor& x, at::Tensor& out, int64_t first) {
  const int64_t rows = x.size(0), columns = x.size(1);
  TLT_CHECK(first >= 0 && first + columns <= out.size(1), columns, " columns from ", first, " of ",
            out.size(1));
  check_rows(x, rows, columns, "columns to put");
  check_rows(out, rows, out.size(1), "rows that columns are put into");
  TLT_CHECK(x.scalar_type() == out.scalar_type());
  if (!device.is_cpu()) {
    out.narrow(1, first, columns).copy_(x);
    return;
  }
  const int64_t size = x.element_size();
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(static_cast<char*>(row_pointer(out, row)) + first * size, row_pointer(x, row),
                static_cast<size_t>(columns * size));
}

}  // namespace tlt::ops
