// SPDX-License-Identifier: Apache-2.0
#include "ops/device_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/cpu/bridge.h"
#include "ops/cuda/kernels.h"
#include "ops/device_batch.h"

namespace tlt::ops {
namespace {

using cuda::kMostListed;

// Calls body(first, count) for runs of a list that fit the parameters of a launch.
template <class Body>
void for_lists(int64_t size, const Body& body) {
  for (int64_t first = 0; first < size; first += kMostListed)
    body(first, std::min<int64_t>(kMostListed, size - first));
}

void check_columns(int64_t columns) {
  TLT_CHECK(columns % 4 == 0, columns, " columns are no multiple of 4");
}

void check_gathered(const at::Tensor& x) {
  TLT_CHECK(x.dim() == 2 && x.is_contiguous(), "rows to gather");
  check_columns(x.size(1));
}

cuda::NormShape norm_shape(const at::Tensor& x, double epsilon) {
  check_columns(x.size(1));
  return {x.size(0), x.size(1), static_cast<float>(epsilon)};
}

const float* weights_or_null(const at::Tensor* x) { return x ? x->data_ptr<float>() : nullptr; }

// out [columns] += the columns of `of`, in blocks of rows.
void add_column_sums(const cuda::RowKernels& kernels, Type type, cuda::ColumnParts of,
                     const at::Tensor& out) {
  const at::Tensor parts = out.new_empty({cuda::column_blocks(of.rows), of.columns});
  of.parts = parts.data_ptr<float>();
  kernels.sum_column_parts(type, of);
  kernels.add_column_parts({.parts = of.parts,
                            .out = out.data_ptr<float>(),
                            .count = parts.size(0),
                            .columns = of.columns});
}

float inverse_of(double temperature) { return static_cast<float>(1.0 / temperature); }

}  // namespace

const DeviceRows* device_rows(const at::Device& device) {
  if (device.is_cpu()) return nullptr;
  const DeviceKernels* kernels = device_kernels(device);
  if (!kernels) return nullptr;
  // One table for all devices of a program.
  static const DeviceRows rows(kernels->rows);
  return &rows;
}

void DeviceRows::rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                          at::Tensor& out) const {
  check_rows(x, x.size(0), x.size(1), "norm input");
  check_rows(out, x.size(0), x.size(1), "norm output");
  kernels_.rms_norm(kernel_type(x), {.x = x.data_ptr(),
                                     .weight = weight.data_ptr<float>(),
                                     .out = out.data_ptr(),
                                     .shape = norm_shape(x, epsilon)});
}

void DeviceRows::rms_norm_backward(const RmsNormGradient& gradient) const {
  const at::Tensor &dy = gradient.dy, &x = gradient.x;
  const int64_t rows = x.size(0), columns = x.size(1);
  check_rows(x, rows, columns, "norm input");
  check_rows(dy, rows, columns, "norm gradient");
  check_rows(gradient.dx, rows, columns, "norm input gradient");
  const at::Tensor scales = at::empty({rows}, x.options().dtype(at::kFloat));
  kernels_.rms_norm_backward(kernel_type(x), {.dy = dy.data_ptr(),
                                              .x = x.data_ptr(),
                                              .weight = gradient.weight.data_ptr<float>(),
                                              .dx = gradient.dx.data_ptr(),
                                              .scales = scales.data_ptr<float>(),
                                              .shape = norm_shape(x, gradient.epsilon)});
  if (!gradient.dweight.defined()) return;
  add_column_sums(kernels_, kernel_type(x),
                  {.x = dy.data_ptr(),
                   .y = x.data_ptr(),
                   .scales = scales.data_ptr<float>(),
                   .rows = rows,
                   .columns = columns},
                  gradient.dweight);
}

void DeviceRows::add_columns(const at::Tensor& x, at::Tensor& out) const {
  check_rows(x, x.size(0), out.size(0), "columns to add");
  add_column_sums(kernels_, kernel_type(x),
                  {.x = x.data_ptr(), .rows = x.size(0), .columns = x.size(1)}, out);
}

void DeviceRows::add_fixed_point(const at::Tensor& x, const FixedPointBounds& bounds,
                                 const at::Tensor& magnitude, const at::Tensor& sums) const {
  TLT_CHECK(x.is_contiguous() && sums.is_contiguous() && x.numel() == sums.numel());
  const at::Tensor parts =
      at::empty({cuda::magnitude_parts(x.numel())}, x.options().dtype(at::kInt));
  auto* largest = magnitude.data_ptr<int64_t>();
  kernels_.add_magnitude({.x = x.data_ptr<float>(),
                          .parts = static_cast<uint32_t*>(parts.data_ptr()),
                          .magnitude = largest,
                          .limit = bounds.limit,
                          .invalid = bounds.invalid,
                          .count = x.numel()});
  kernels_.add_fixed_point({.x = x.data_ptr<float>(),
                            .sums = sums.data_ptr<int64_t>(),
                            .magnitude = largest,
                            .limit = bounds.limit,
                            .count = x.numel()});
}

void DeviceRows::sum_slices(const at::Tensor& slices, const LinearExtras& extras,
                            at::Tensor& out) const {
  const int64_t rows = out.size(0), columns = out.size(1);
  check_rows(out, rows, columns, "sum of slices");
  TLT_CHECK(slices.dim() == 3 && slices.size(1) >= rows && slices.size(2) == columns &&
            slices.stride(1) == columns && slices.stride(2) == 1);
  if (extras.residual) {
    check_rows(*extras.residual, rows, columns, "residual");
    TLT_CHECK(extras.residual->scalar_type() == out.scalar_type());
  }
  kernels_.sum_slices(kernel_type(out),
                      {.parts = slices.data_ptr<float>(),
                       .bias = extras.bias ? extras.bias->data_ptr<float>() : nullptr,
                       .residual = extras.residual ? extras.residual->data_ptr() : nullptr,
                       .out = out.data_ptr(),
                       .slice_stride = slices.stride(0),
                       .slices = slices.size(0),
                       .rows = rows,
                       .columns = columns});
}

void DeviceRows::swiglu(const at::Tensor& gate_up, at::Tensor& out) const {
  const int64_t rows = out.size(0), columns = out.size(1);
  check_rows(gate_up, rows, 2 * columns, "gate and up");
  check_rows(out, rows, columns, "swiglu output");
  check_columns(columns);
  kernels_.swiglu(kernel_type(out), {gate_up.data_ptr(), out.data_ptr(), rows, columns});
}

void DeviceRows::swiglu_backward(const at::Tensor& d_out, const at::Tensor& gate_up,
                                 at::Tensor& d_gate_up) const {
  const int64_t rows = d_out.size(0), columns = d_out.size(1);
  check_rows(d_out, rows, columns, "swiglu output gradient");
  check_rows(gate_up, rows, 2 * columns, "gate and up");
  check_rows(d_gate_up, rows, 2 * columns, "gate and up gradient");
  check_columns(columns);
  kernels_.swiglu_backward(kernel_type(d_out), {d_out.data_ptr(), gate_up.data_ptr(),
                                                d_gate_up.data_ptr(), rows, columns});
}

void DeviceRows::gather_rows(const at::Tensor& x, std::span<const int64_t> rows,
                             at::Tensor& out) const {
  check_gathered(x);
  check_rows(out, std::ssize(rows), x.size(1), "gathered rows");
  for_lists(std::ssize(rows), [&](int64_t first, int64_t count) {
    cuda::GatheredRows list{
        .x = x.data_ptr(), .out = row_pointer(out, first), .columns = x.size(1), .count = count};
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = rows[static_cast<size_t>(first + i)];
      TLT_CHECK(row >= 0 && row < x.size(0), "row ", row, " of ", x.size(0));
      list.rows[i] = static_cast<int32_t>(row);
    }
    kernels_.gather_rows(kernel_type(x), list);
  });
}

void DeviceRows::embed_backward(const at::Tensor& dx, std::span<const int32_t> tokens,
                                at::Tensor& dtable) const {
  check_rows(dx, std::ssize(tokens), dtable.size(1), "embedding gradient");
  check_columns(dx.size(1));
  if (tokens.empty()) return;
  std::vector<int64_t> rows(tokens.size()), ids, begins;
  std::iota(rows.begin(), rows.end(), 0);
  const auto token_of = [&](int64_t row) { return tokens[static_cast<size_t>(row)]; };
  std::ranges::stable_sort(rows, {}, token_of);  // a token's rows stay in order
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const int64_t token = token_of(rows[static_cast<size_t>(i)]);
    TLT_CHECK(token >= 0 && token < dtable.size(0), "token ", token, " of ", dtable.size(0));
    if (!ids.empty() && ids.back() == token) continue;
    ids.push_back(token);
    begins.push_back(i);
  }
  begins.push_back(std::ssize(rows));
  const int64_t count = std::ssize(ids);
  std::vector<int64_t> all = ids;
  all.insert(all.end(), begins.begin(), begins.end());
  all.insert(all.end(), rows.begin(), rows.end());
  const at::Tensor lists = at::tensor(all, at::kLong).to(dx.device());
  const auto* first = lists.data_ptr<int64_t>();
  kernels_.embed_backward(kernel_type(dx), {.dx = dx.data_ptr(),
                                            .ids = first,
                                            .begins = first + count,
                                            .rows = first + 2 * count + 1,
                                            .dtable = dtable.data_ptr<float>(),
                                            .tokens = count,
                                            .columns = dx.size(1)});
}

// --- KV cache ---

void DeviceRows::rope_and_store(const AttentionRows& rows, const DeviceBatch& on_device,
                                const RopeStore& rope, at::Tensor& qkv) const {
  const auto& [shape, batch, cache, given] = rows;
  const at::Tensor& storage = cache.storage;
  kernels_.rope_and_store(kernel_type(qkv),
                          {.qkv = qkv.data_ptr(),
                           .positions = on_device.positions().data_ptr<int64_t>(),
                           .entries = on_device.entries().data_ptr<int64_t>(),
                           .cos_sin = rope.cos_sin.data_ptr<float>(),
                           .q_norm = weights_or_null(rope.q_norm),
                           .k_norm = weights_or_null(rope.k_norm),
                           .tree = batch.tree_rows > 0 ? cache.tree.data_ptr() : nullptr,
                           .pages = {storage.data_ptr(), storage.stride(0),
                                     cache.layer * storage.stride(1), storage.stride(2)},
                           .rows = batch.rows(),
                           .heads = shape.heads,
                           .kv_heads = shape.kv_heads,
                           .head_size = shape.head_size,
                           .norm_epsilon = static_cast<float>(rope.norm_epsilon)});
}

void DeviceRows::rope_backward(const RotatedRows& rows, const aten::RotatedGradient& d,
                               const AttentionGradient& gradient) const {
  const auto& [shape, on_device, rope] = rows;
  const int64_t count = d.d_q.size(0), h = shape.head_size;
  check_rows(gradient.d_qkv, count, (shape.heads + 2 * shape.kv_heads) * h, "qkv gradient");
  TLT_CHECK(d.d_q.is_contiguous() && d.d_k.is_contiguous() && d.d_v.is_contiguous());
  kernels_.rope_backward(
      kernel_type(gradient.d_qkv),
      {.d_q = d.d_q.data_ptr<float>(),
       .d_k = d.d_k.data_ptr<float>(),
       .d_v = d.d_v.data_ptr<float>(),
       .raw_qkv = rope.q_norm || rope.k_norm ? gradient.raw_qkv.data_ptr() : nullptr,
       .d_qkv = gradient.d_qkv.data_ptr(),
       .positions = on_device.positions().data_ptr<int64_t>(),
       .cos_sin = rope.cos_sin.data_ptr<float>(),
       .q_norm = weights_or_null(rope.q_norm),
       .k_norm = weights_or_null(rope.k_norm),
       .rows = count,
       .heads = shape.heads,
       .kv_heads = shape.kv_heads,
       .head_size = h,
       .norm_epsilon = static_cast<float>(rope.norm_epsilon)});
  if (rope.q_norm && gradient.d_q_norm) add_columns(d.d_q.view({-1, h}), *gradient.d_q_norm);
  if (rope.k_norm && gradient.d_k_norm) add_columns(d.d_k.view({-1, h}), *gradient.d_k_norm);
}

void DeviceRows::keep_entries(const at::Tensor& storage, const at::Tensor& tree,
                              std::span<const Entry> entries) const {
  TLT_CHECK(storage.is_contiguous() && tree.is_contiguous());
  for_lists(std::ssize(entries), [&](int64_t first, int64_t count) {
    cuda::KeptEntries list{.storage = storage.data_ptr(),
                           .tree = tree.data_ptr(),
                           .layers = storage.size(1),
                           .kv_heads = storage.size(2),
                           .head_size = storage.size(4) / kPageSlots,
                           .tree_rows = tree.size(1),
                           .count = count};
    for (int64_t i = 0; i < count; ++i) {
      const auto [tree_row, slot] = entries[static_cast<size_t>(first + i)];
      list.entries[i] = {static_cast<int32_t>(tree_row), static_cast<int32_t>(slot)};
    }
    kernels_.keep_entries(kernel_type(storage), list);
  });
}

void DeviceRows::copy_pages(const at::Tensor& storage, std::span<const PageCopy> copies) const {
  const int64_t bytes = storage.stride(0) * storage.element_size();
  TLT_CHECK(storage.is_contiguous() && bytes % 16 == 0, bytes, " bytes of a page");
  cuda::CopiedPages list{.storage = storage.data_ptr(), .units = bytes / 16};
  const auto launch = [&] {
    if (list.count > 0) kernels_.copy_pages(list);
    list.count = 0;
  };
  for (const PageCopy& copy : copies) {
    // The copies of a launch happen at the same time: one that needs another's result waits.
    const auto touches = [&](const cuda::CopiedPages::Copy& other) {
      return other.to == copy.from || other.to == copy.to || other.from == copy.to;
    };
    if (list.count == kMostListed || std::any_of(list.copies, list.copies + list.count, touches))
      launch();
    list.copies[list.count++] = {copy.from, copy.to};
  }
  launch();
}

// --- logits ---

void DeviceRows::sample(const at::Tensor& logits, int64_t vocabulary,
                        std::span<const SampleRow> rows, const at::Tensor& sampled,
                        std::span<const Sampled> given) const {
  TLT_CHECK(logits.scalar_type() == at::kFloat && logits.size(1) >= vocabulary &&
            sampled.is_contiguous() &&
            sampled.numel() * sampled.element_size() ==
                std::ssize(rows) * int64_t{sizeof(Sampled)});
  static_assert(sizeof(Sampled) == sizeof(cuda::SampledToken));
  auto* to = static_cast<cuda::SampledToken*>(sampled.data_ptr());
  cuda::SampledRows list{.logits = logits.data_ptr<float>(),
                         .sampled = to,
                         .stride = logits.stride(0),
                         .vocabulary = vocabulary};
  const auto launch = [&] {
    if (list.count > 0) kernels_.sample(list);
    list.sampled += list.count;
    list.count = 0;
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const SampleRow& row = rows[i];
    TLT_CHECK(row.row >= 0 && row.row < logits.size(0), "row ", row.row, " of logits");
    const int64_t allowed = row.tokens > 0 ? std::min(row.tokens, vocabulary) : vocabulary;
    if (list.count == kMostListed || (list.count > 0 && allowed != list.allowed)) launch();
    list.allowed = allowed;
    list.rows[list.count++] = {
        .row = static_cast<int32_t>(row.row),
        .inverse_temperature = row.rule.temperature > 0 ? inverse_of(row.rule.temperature) : 0.0f,
        .uniform = is_sampled(row) ? static_cast<uint64_t>(row.uniform * 0x1p53)
                                   : cuda::kGivenToken + static_cast<uint64_t>(given[i].token)};
  }
  launch();
}

void DeviceRows::find_top_tokens(const RowsToSearch& rows, std::vector<TopToken>& top) const {
  const at::Tensor& logits = rows.logits;
  const int64_t all = logits.size(0), k = rows.count;
  constexpr auto kBytes = int64_t{sizeof(cuda::TopToken)};
  const at::Tensor found = at::empty({all, k, kBytes}, logits.options().dtype(at::kByte));
  for_lists(all, [&](int64_t first, int64_t count) {
    cuda::TopRows list{.logits = logits.data_ptr<float>(),
                       .top = static_cast<cuda::TopToken*>(found.data_ptr()) + first * k,
                       .first_row = first,
                       .stride = logits.stride(0),
                       .vocabulary = logits.size(1),
                       .count = count,
                       .k = k};
    std::copy_n(rows.inverse_temperatures.begin() + first, count, list.inverse_temperatures);
    kernels_.find_top_tokens(list);
  });
  const at::Tensor host = found.cpu();
  const auto* from = static_cast<const cuda::TopToken*>(host.const_data_ptr());
  top.resize(static_cast<size_t>(all * k));
  for (size_t i = 0; i < top.size(); ++i)
    top[i] = {from[i].token, from[i].probability, static_cast<double>(from[i].before) * 0x1p-53};
}

void DeviceRows::row_statistics(const TargetRows& rows, RowStatistics& out) const {
  const int64_t count = rows.targets.size(0);
  const at::Tensor targets = rows.targets.to(rows.logits.device());
  out.on_device = at::empty({3, count}, rows.logits.options());
  float* to = out.on_device.data_ptr<float>();
  kernels_.row_statistics({.logits = rows.logits.data_ptr<float>(),
                           .targets = targets.data_ptr<int32_t>(),
                           .logprobs = to,
                           .lse = to + count,
                           .entropies = to + 2 * count,
                           .stride = rows.logits.stride(0),
                           .vocabulary = rows.vocabulary,
                           .rows = count,
                           .inverse_temperature = inverse_of(rows.temperature)});
  const at::Tensor host = out.on_device.cpu();
  out.logprob = host.select(0, 0);
  out.lse = host.select(0, 1);
  out.entropy = host.select(0, 2);
  const float* logprobs = out.logprob.const_data_ptr<float>();
  for (int64_t i = 0; i < count; ++i)
    TLT_CHECK(logprobs[i] != INFINITY, "the target of row ", i, " is outside the vocabulary of ",
              rows.vocabulary);
}

void DeviceRows::logits_backward(const TargetRows& rows, const RowStatistics& statistics,
                                 const at::Tensor& d_logprob, const at::Tensor& d_entropy) const {
  const int64_t count = rows.targets.size(0);
  TLT_CHECK(statistics.on_device.defined() && statistics.on_device.size(1) == count,
            "statistics of other rows");
  const at::Tensor targets = rows.targets.to(rows.logits.device()),
                   gradients = at::stack({d_logprob, d_entropy}).to(rows.logits.device());
  const float *of_rows = statistics.on_device.data_ptr<float>(), *d = gradients.data_ptr<float>();
  kernels_.logits_backward({.logits = rows.logits.data_ptr<float>(),
                            .targets = targets.data_ptr<int32_t>(),
                            .lse = of_rows + count,
                            .entropies = of_rows + 2 * count,
                            .d_logprobs = d,
                            .d_entropies = d + count,
                            .stride = rows.logits.stride(0),
                            .columns = rows.logits.size(1),
                            .vocabulary = rows.vocabulary,
                            .rows = count,
                            .inverse_temperature = inverse_of(rows.temperature)});
}

}  // namespace tlt::ops
