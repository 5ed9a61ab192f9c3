// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "ops/cpu/bridge.h"
#include "ops/device_product.h"
#include "ops/device_rows.h"
#include "ops/elementwise.h"

namespace tlt::ops {
namespace {

constexpr int64_t kPanel = Weight::kPanel;
// Rows of one task: with K = 1024 they take 192 KB, so that they and a panel fit a core's cache.
constexpr int64_t kRowBlock = 96;
// Tokens whose gradients are summed at a time: two panels of them fit a core's cache.
constexpr int64_t kTokenBlock = 1024;

// Divides rows x panels into tasks.
class Cut {
 public:
  // panel_units: units of a row that go into one panel's 64 columns.
  Cut(int threads, int64_t rows, int64_t panels, int64_t panel_units)
      : rows_(rows), panels_(panels), blocks_(divide_up(rows, kRowBlock)) {
    // About four tasks per thread balance the load; a task is worth at least half a microsecond,
    // somewhat more than the cost of starting an operation.
    const int64_t wanted = divide_up(4 * threads, blocks_);
    const int64_t panel_work = std::max<int64_t>(1, std::min(rows, kRowBlock) * panel_units);
    const int64_t least = std::max<int64_t>(1, kLeastWork / panel_work);
    groups_ = divide_up(panels, std::max(least, divide_up(panels, wanted)));
    // A small number of tasks is a multiple of the threads: two threads need as long for three
    // tasks as for four.
    if (blocks_ == 1 && groups_ > threads) groups_ -= groups_ % threads;
  }
  int64_t tasks() const { return blocks_ * groups_; }
  // Rows and panels of a task. Groups of panels have even size, because the operation waits for the
  // last one.
  void apply(int64_t index, GemmTask& task) const {
    const int64_t block = index / groups_, group = index % groups_;
    task.first_row = block * kRowBlock;
    task.rows = std::min(kRowBlock, rows_ - task.first_row);
    task.first_panel = group * panels_ / groups_;
    task.panels = (group + 1) * panels_ / groups_ - task.first_panel;
  }

 private:
  static constexpr int64_t kLeastWork = 512;  // units times rows: four products of 16 lanes each
  int64_t rows_, panels_, blocks_, groups_;
};

void run_tasks(const Device& device, const GemmTask& whole, Type type) {
  const Kernels& kernels = cpu_kernels();
  const Cut cut(device.pool().threads(), whole.rows, divide_up(whole.columns, kPanel), whole.units);
  device.pool().run(cut.tasks(), [&](int64_t index) {
    GemmTask task = whole;
    cut.apply(index, task);
    kernels.gemm(type, task);
  });
}

void check_linear(const at::Tensor& x, const Weight& w, const at::Tensor& out) {
  check_rows(x, x.size(0), w.columns(), "linear input");
  check_rows(out, x.size(0), w.rows(), "linear output");
  TLT_CHECK(x.scalar_type() == w.type() &&
            (out.scalar_type() == w.type() || out.scalar_type() == at::kFloat));
}

GemmTask whole_task(const at::Tensor& x, const Weight& w, at::Tensor& out,
                    const LinearExtras& extras) {
  const int64_t u = unit_elements(w.type());
  return {.a = x.data_ptr(),
          .a_row_stride = w.columns() / u,
          .b = w.storage().data_ptr(),
          .units = w.columns() / u,
          .rows = x.size(0),
          .columns = w.rows(),
          .out = out.data_ptr(),
          .out_stride = w.rows(),
          .out_is_float = out.scalar_type() == at::kFloat,
          .bias = extras.bias ? extras.bias->data_ptr<float>() : nullptr,
          .residual = extras.residual ? extras.residual->data_ptr() : nullptr};
}

// The panels of W^T: the right-hand side of the backward product.
at::Tensor transposed_panels(const Device& device, const Weight& w) {
  const int64_t n_panels = divide_up(w.rows(), kPanel), k_panels = divide_up(w.columns(), kPanel);
  const bool pairs = w.type() == at::kBFloat16;
  const int64_t n_units = pairs ? divide_up(w.rows(), 2) : w.rows();
  at::Tensor out = device.empty({k_panels, n_units, kPanel, pairs ? 2 : 1}, w.type());
  device.pool().run(k_panels, [&](int64_t k_panel) {
    const int64_t first = k_panel * kPanel, count = std::min(kPanel, w.columns() - first);
    if (count < kPanel)
      std::memset(row_pointer(out, k_panel), 0,
                  static_cast<size_t>(out.stride(0) * out.element_size()));
    if (pairs) {
      // Two rows and two columns make eight bytes in both layouts.
      const auto* from = static_cast<const uint64_t*>(w.storage().data_ptr());
      auto* to = static_cast<uint64_t*>(out.data_ptr()) + k_panel * n_units * kPanel / 2;
      for (int64_t panel = 0; panel < n_panels; ++panel)
        for (int64_t k = 0; k < count / 2; ++k)
          for (int64_t n = 0; n < kPanel / 2 && panel * kPanel / 2 + n < n_units; ++n) {
            const uint64_t x = from[(panel * w.columns() / 2 + first / 2 + k) * (kPanel / 2) + n];
            to[(panel * kPanel / 2 + n) * (kPanel / 2) + k] =
                (x & 0xffff00000000ffffu) | (x & 0xffff0000u) << 16 | (x >> 16 & 0xffff0000u);
          }
    } else {
      const float* from = w.storage().data_ptr<float>();
      float* to = out.data_ptr<float>() + k_panel * n_units * kPanel;
      for (int64_t n = 0; n < w.rows(); ++n)
        for (int64_t k = 0; k < count; ++k)
          to[n * kPanel + k] = from[(n / kPanel * w.columns() + first + k) * kPanel + n % kPanel];
    }
  });
  return out;
}

// x [rows, columns] as panels whose K is the row: [columns / 64, rows / u, 64, u].
at::Tensor packed_rows(const Device& device, const at::Tensor& x, int64_t first, int64_t rows) {
  const int64_t columns = x.size(1), panels = divide_up(columns, kPanel);
  const int64_t u = unit_elements(x.scalar_type());
  at::Tensor out = device.empty({panels, divide_up(rows, u), kPanel, u}, x.scalar_type());
  const Kernels& kernels = cpu_kernels();
  device.pool().run(panels, [&](int64_t panel) {
    kernels.pack_rows(kernel_type(x), {.x = row_pointer(x, first),
                                       .stride = x.stride(0),
                                       .rows = rows,
                                       .columns = columns,
                                       .first_panel = panel,
                                       .panels = 1,
                                       .out = out.data_ptr()});
  });
  return out;
}

// Elements of a task of add_slices().
constexpr int64_t kSumBlock = 4096;

struct Elements {
  int64_t first, count;
};

// residual: null for none.
template <class T>
void add_block(const at::Tensor& parts, const T* residual, const Elements& elements, T* out) {
  std::array<float, kSumBlock> sum;
  const float* part = parts.data_ptr<float>() + elements.first;
  std::copy_n(part, elements.count, sum.begin());
  for (int64_t slice = 1; slice < parts.size(0); ++slice) {
    part += parts.stride(0);
    for (int64_t i = 0; i < elements.count; ++i) sum[static_cast<size_t>(i)] += part[i];
  }
  if (residual)
    for (int64_t i = 0; i < elements.count; ++i)
      sum[static_cast<size_t>(i)] += static_cast<float>(residual[i]);
  for (int64_t i = 0; i < elements.count; ++i) out[i] = static_cast<T>(sum[static_cast<size_t>(i)]);
}

// add_slices() on the CPU.
template <class T>
void add_blocks(const Device& device, const at::Tensor& parts, const at::Tensor& residual,
                at::Tensor& out) {
  const T* from = residual.defined() ? residual.data_ptr<T>() : nullptr;
  T* to = out.data_ptr<T>();
  device.pool().run(divide_up(parts.stride(0), kSumBlock), [&](int64_t block) {
    const int64_t first = block * kSumBlock;
    add_block(parts, from ? from + first : nullptr,
              {first, std::min(kSumBlock, parts.stride(0) - first)}, to + first);
  });
}

}  // namespace

void linear(const Device& device, const at::Tensor& x, const Weight& w, at::Tensor& out,
            const LinearExtras& extras) {
  check_linear(x, w, out);
  if (!device.is_cpu()) return device_product({x, w.storage().t(), w.plans().forward}, out, extras);
  run_tasks(device, whole_task(x, w, out, extras), kernel_type(x));
}

void gated_linear(const Device& device, const at::Tensor& x, const Weight& w, at::Tensor& gate_up,
                  at::Tensor& out) {
  const int64_t columns = w.rows() / 2, pairs = columns / kPanel;
  if (!device.is_cpu() || columns % kPanel != 0) {
    linear(device, x, w, gate_up);
    return swiglu(device, gate_up, out);
  }
  check_linear(x, w, gate_up);
  check_rows(out, x.size(0), columns, "swiglu output");
  TLT_CHECK(gate_up.scalar_type() == w.type() && out.scalar_type() == w.type());
  const Kernels& kernels = cpu_kernels();
  const GemmTask whole = whole_task(x, w, gate_up, {});
  const Cut cut(device.pool().threads(), whole.rows, pairs, 2 * whole.units);
  device.pool().run(cut.tasks(), [&](int64_t index) {
    GemmTask task = whole;
    cut.apply(index, task);
    kernels.gemm(kernel_type(x), task);
    const int64_t first = task.first_panel * kPanel;
    task.first_panel += pairs;
    kernels.gemm(kernel_type(x), task);
    kernels.swiglu(kernel_type(x), {.gate_up = row_pointer(gate_up, task.first_row),
                                    .rows = task.rows,
                                    .columns = columns,
                                    .first = first,
                                    .count = task.panels * kPanel,
                                    .out = row_pointer(out, task.first_row)});
  });
}

void linear_slices(const Device& device, const at::Tensor& x, const Weight& w, at::Tensor& parts) {
  const int64_t slices = parts.size(0), rows = x.size(0), width = w.columns() / slices;
  check_rows(x, rows, w.columns(), "linear input");
  TLT_CHECK(parts.dim() == 3 && parts.size(1) == rows && parts.size(2) == w.rows() &&
                parts.is_contiguous() && parts.scalar_type() == at::kFloat &&
                x.scalar_type() == w.type(),
            "the sums of ", slices, " slices");
  TLT_CHECK(w.columns() % slices == 0 && width % 2 == 0, slices, " slices of ", w.columns(),
            " columns");
  if (!device.is_cpu()) return aten::linear_slices(x, w.storage(), parts);
  const int64_t u = unit_elements(w.type()), panels = divide_up(w.rows(), kPanel),
                blocks = divide_up(rows, kRowBlock);
  const auto bytes = static_cast<int64_t>(x.element_size());
  const Kernels& kernels = cpu_kernels();
  device.pool().run(slices * panels * blocks, [&](int64_t index) {
    const int64_t slice = index / (panels * blocks), panel = index / blocks % panels;
    const int64_t first_row = index % blocks * kRowBlock;
    kernels.gemm(kernel_type(x),
                 {.a = static_cast<const char*>(x.data_ptr()) + slice * width * bytes,
                  .a_row_stride = w.columns() / u,
                  .b = static_cast<const char*>(w.storage().data_ptr()) +
                       (panel * w.columns() + slice * width) * kPanel * bytes,
                  .units = width / u,
                  .first_row = first_row,
                  .rows = std::min(kRowBlock, rows - first_row),
                  .first_panel = 0,
                  .panels = 1,
                  .columns = std::min(kPanel, w.rows() - panel * kPanel),
                  .out = parts.data_ptr<float>() + slice * parts.stride(0) + panel * kPanel,
                  .out_stride = w.rows(),
                  .out_is_float = true});
  });
}

void add_slices(const Device& device, const at::Tensor& parts, const at::Tensor& residual,
                at::Tensor& out) {
  if (residual.defined()) {
    check_rows(residual, parts.size(1), parts.size(2), "residual");
    TLT_CHECK(residual.scalar_type() == out.scalar_type());
  }
  check_rows(out, parts.size(1), parts.size(2), "sum of slices");
  TLT_CHECK(parts.is_contiguous() && parts.scalar_type() == at::kFloat);
  const LinearExtras extras{.residual = residual.defined() ? &residual : nullptr};
  if (const DeviceRows* own = device_rows(device)) return own->sum_slices(parts, extras, out);
  if (!device.is_cpu()) return aten::add_slices(parts, extras, out);
  out.scalar_type() == at::kFloat ? add_blocks<float>(device, parts, residual, out)
                                  : add_blocks<at::BFloat16>(device, parts, residual, out);
}

void linear_backward_input(const Device& device, const at::Tensor& dy, const Weight& w,
                           at::Tensor& dx, bool accumulate) {
  check_rows(dy, dy.size(0), w.rows(), "output gradient");
  check_rows(dx, dy.size(0), w.columns(), "input gradient");
  if (!device.is_cpu())
    return device_product({dy, w.storage(), w.plans().backward}, dx,
                          {.residual = accumulate ? &dx : nullptr});
  const int64_t u = unit_elements(w.type()), units = divide_up(w.rows(), u);
  // An odd number of rows does not split into pairs: pad (an LM head with an odd vocabulary).
  const at::Tensor a = w.rows() % u == 0 ? dy : at::constant_pad_nd(dy, {0, 1});
  const at::Tensor b = transposed_panels(device, w);
  run_tasks(device,
            {.a = a.data_ptr(),
             .a_row_stride = units,
             .b = b.data_ptr(),
             .units = units,
             .rows = dy.size(0),
             .columns = w.columns(),
             .out = dx.data_ptr(),
             .out_stride = w.columns(),
             .out_is_float = dx.scalar_type() == at::kFloat,
             .residual = accumulate ? dx.data_ptr() : nullptr},
            kernel_type(a));
}

void linear_backward_weight(const Device& device, const at::Tensor& dy, const at::Tensor& x,
                            at::Tensor& dw, at::Tensor* dbias) {
  const int64_t rows = x.size(0), n = dy.size(1), k = x.size(1);
  check_rows(dy, rows, n, "output gradient");
  if (dw.defined()) check_rows(dw, n, k, "weight gradient");
  if (!device.is_cpu()) {
    if (dw.defined()) add_product(dy.t(), x, dw);
    if (dbias) dbias->add_(dy.to(at::kFloat).sum(0));
    return;
  }
  const Kernels& kernels = cpu_kernels();
  const int64_t u = unit_elements(x.scalar_type());
  for (int64_t first = 0; first < rows && dw.defined(); first += kTokenBlock) {
    const int64_t count = std::min(kTokenBlock, rows - first), units = divide_up(count, u);
    const at::Tensor a = packed_rows(device, dy, first, count),
                     b = packed_rows(device, x, first, count);
    const int64_t k_panels = b.size(0);
    device.pool().run(a.size(0) * k_panels, [&](int64_t index) {
      const int64_t n_panel = index / k_panels;
      kernels.gemm(kernel_type(x), {.a = row_pointer(a, n_panel),
                                    .a_row_stride = 1,
                                    .a_unit_stride = kPanel,
                                    .b = b.data_ptr(),
                                    .units = units,
                                    .rows = std::min(kPanel, n - n_panel * kPanel),
                                    .first_panel = index % k_panels,
                                    .panels = 1,
                                    .columns = k,
                                    .out = dw.data_ptr<float>() + n_panel * kPanel * k,
                                    .out_stride = k,
                                    .out_is_float = true,
                                    .accumulate = true});
    });
  }
  if (!dbias) return;
  device.pool().run(divide_up(n, kPanel), [&](int64_t panel) {
    kernels.add_columns(kernel_type(dy), {.x = dy.data_ptr(),
                                          .stride = dy.stride(0),
                                          .rows = rows,
                                          .first = panel * kPanel,
                                          .count = std::min(kPanel, n - panel * kPanel),
                                          .out = dbias->data_ptr<float>()});
  });
}

}  // namespace tlt::ops
