// DeviceBatch: a Batch as a device other than the CPU reads it, in one upload.
//
// A Batch lives on the host. Each of its lists that an operation needs as a tensor would be a copy
// that the host waits for, in every layer; this makes one copy for all of them.
//
//   const DeviceBatch on_device(batch, device.torch());
//   layer.forward({device, batch, angles, cache.layer(i), &on_device}, …);
//
// Owns       the tensor of indices. Does not refer to the batch afterwards.
// Threading  the thread that drives the device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/batch.h"

namespace tlt::ops {

// All tensors are int64.
class DeviceBatch {
 public:
  DeviceBatch(const Batch& batch, const at::Device& device);

  const at::Tensor& tokens() const { return tokens_; }        // [T]
  const at::Tensor& positions() const { return positions_; }  // [T]

  // Where the KV entry of each row goes: page * kPageSlots + slot in it; of a row of a draft tree,
  // ~(its number among the rows of all trees).
  const at::Tensor& entries() const { return entries_; }  // [T]

  // The rows that are not of draft trees, and where their KV entries go.
  const at::Tensor& stored_rows() const { return stored_rows_; }  // [n]
  const at::Tensor& stored_pages() const { return stored_pages_; }
  const at::Tensor& stored_slots() const { return stored_slots_; }

  // What a kernel of attention reads of each row (ops/cuda/attention_parameters.h): where its pages
  // and its path begin in lists(), and the position of the root of its tree.
  const at::Tensor& lists() const { return indices_; }
  const at::Tensor& tables() const { return tables_; }    // [T]
  const at::Tensor& roots() const { return roots_; }      // [T]; INT32_MAX: of no tree
  const at::Tensor& paths() const { return row_paths_; }  // [T]
  // Positions of the longest sequence.
  int64_t positions_seen() const { return positions_seen_; }
  // For the gradient of attention (ops/cuda/attention_parameters.h): every kKeyRows-th row of each
  // segment; of each row, the one after its segment and the one after the last that sees its key.
  const at::Tensor& key_tiles() const { return key_tiles_; }
  const at::Tensor& ends() const { return ends_; }              // [T]
  const at::Tensor& seen_until() const { return seen_until_; }  // [T]

  // The pages of the first `positions` positions of a segment, by its index.
  at::Tensor pages(size_t segment, int64_t positions) const;
  // The path of a row of a draft tree, as tree rows, the root first. `tree_row`: its number among
  // the rows of all trees.
  at::Tensor path(int64_t tree_row) const;

 private:
  struct Part {
    int64_t first, count;
  };

  at::Tensor part(const Part& which) const;

  at::Tensor indices_;
  at::Tensor tokens_, positions_, entries_, stored_rows_, stored_pages_, stored_slots_;
  at::Tensor tables_, roots_, row_paths_, key_tiles_, ends_, seen_until_;
  int64_t positions_seen_ = 0;
  std::vector<Part> pages_;  // by segment
  std::vector<Part> paths_;  // by tree row
};

}  // namespace tlt::ops
