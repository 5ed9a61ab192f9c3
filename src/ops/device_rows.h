// DeviceRows: the operations of elementwise.h, sampling.h and attention.h on a device that has
// kernels of its own (ops/cuda/row_parameters.h): one launch each, and no copy between host and
// device where none is mentioned.
//
// Borrows    the table of kernels, which is never freed.
// Threading  the thread that drives the device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "ops/aten_bodies.h"
#include "ops/attention.h"
#include "ops/cuda/row_parameters.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/sampling.h"

namespace tlt::ops {

class DeviceRows {
 public:
  explicit DeviceRows(const cuda::RowKernels& kernels) : kernels_(kernels) {}

  void rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                at::Tensor& out) const;
  void rms_norm_backward(const RmsNormGradient& gradient) const;
  void swiglu(const at::Tensor& gate_up, at::Tensor& out) const;
  void swiglu_backward(const at::Tensor& d_out, const at::Tensor& gate_up,
                       at::Tensor& d_gate_up) const;
  void gather_rows(const at::Tensor& x, std::span<const int64_t> rows, at::Tensor& out) const;
  // One copy to the device: the rows of each token.
  void embed_backward(const at::Tensor& dx, std::span<const int32_t> tokens,
                      at::Tensor& dtable) const;

  void rope_and_store(const AttentionRows& rows, const DeviceBatch& on_device,
                      const RopeStore& rope, at::Tensor& qkv) const;
  struct RotatedRows {
    const AttentionShape& shape;
    const DeviceBatch& on_device;
    const RopeStore& rope;
  };
  // aten::rope_backward(). Overwrites d, and adds to the gradients of the norms' weights.
  void rope_backward(const RotatedRows& rows, const aten::RotatedGradient& d,
                     const AttentionGradient& gradient) const;
  struct Entry {
    int64_t tree_row, slot;  // slot: page * kPageSlots + slot in it
  };
  void keep_entries(const at::Tensor& storage, const at::Tensor& tree,
                    std::span<const Entry> entries) const;
  void copy_pages(const at::Tensor& storage, std::span<const PageCopy> copies) const;

  // sampled [rows] on the device, of 8 bytes each. Rows without
  // is_sampled() have their token in `given`, so every logprob is computed here.
  void sample(const at::Tensor& logits, int64_t vocabulary, std::span<const SampleRow> rows,
              const at::Tensor& sampled, std::span<const Sampled> given = {}) const;
  // Whether the device has a kernel for the row's rule.
  static bool is_sampled(const SampleRow& row) {
    return !row.top &&
           (row.rule.temperature <= 0 || (!row.rule.truncates() && row.target_only == nullptr));
  }
  // One copy to the host.
  void find_top_tokens(const RowsToSearch& rows, std::vector<TopToken>& top) const;
  // One copy to the host.
  void row_statistics(const TargetRows& rows, RowStatistics& out) const;
  // One copy to the device, of the gradients of the statistics.
  void logits_backward(const TargetRows& rows, const RowStatistics& statistics,
                       const at::Tensor& d_logprob, const at::Tensor& d_entropy) const;

  // A largest |x| below `limit` is valid; one that is not, or NaN, counts as `invalid`.
  struct FixedPointBounds {
    int64_t limit, invalid;
  };
  // magnitude [1] int64 += the largest |x|, rounded up. Where it is below the limit then, sums
  // (int64) += round(x 2^40). x contiguous float32.
  void add_fixed_point(const at::Tensor& x, const FixedPointBounds& bounds,
                       const at::Tensor& magnitude, const at::Tensor& sums) const;
  // out [M, C] = the sum of slices [S, >= M, C] float32 in order, + bias [C] + residual [M, C] of
  // out's type, where given; rounded once.
  void sum_slices(const at::Tensor& slices, const LinearExtras& extras, at::Tensor& out) const;

  // out [N] += the columns of x [T, N], in blocks of rows.
  void add_columns(const at::Tensor& x, at::Tensor& out) const;

 private:
  const cuda::RowKernels& kernels_;
};

// Null: the device has no kernels of its own.
const DeviceRows* device_rows(const at::Device& device);
inline const DeviceRows* device_rows(const Device& device) { return device_rows(device.torch()); }

}  // namespace tlt::ops
