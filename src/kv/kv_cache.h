// KvCache: the KV cache of all layers, in pages of 16 positions.
//
// Owns       the storage [P, L, K, 2, H * 16] in the compute type (layout: ops/attention.h), and
//            the KV entries of draft trees from the forward pass until a path is accepted.
// Not here   which pages are free (kv/page_pool.h), which sequence has a page (rollout/sequence.h).
// Threading  engine thread only; no locks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "ops/attention.h"
#include "runtime/device.h"

namespace tlt::kv {

struct KvShape {
  int64_t layers = 0;     // L
  int64_t kv_heads = 0;   // K
  int64_t head_size = 0;  // H
  at::ScalarType type = at::kFloat;

  int64_t page_bytes() const;
};

class KvCache {
 public:
  KvCache(const Device& device, const KvShape& shape, int64_t pages);

  int64_t pages() const { return storage_.size(0); }
  const KvShape& shape() const { return shape_; }
  ops::KvLayer layer(int64_t index) const {
    return {storage_, index,
            tree_layers_.empty() ? at::Tensor() : tree_layers_[static_cast<size_t>(index)]};
  }
  // Reserves memory for the KV entries of `rows` token rows of draft trees (Batch::tree_rows).
  void reserve_tree(int64_t rows);
  // After the forward pass of `batch`: copies accepted paths of its trees into the slots of their
  // positions (ops::keep_paths).
  void keep_paths(const ops::Batch& batch, std::span<const ops::KeptPath> paths) {
    ops::keep_paths(device_, {storage_, tree_}, batch, paths);
  }
  void keep_path(const ops::Batch& batch, const ops::Segment& segment,
                 std::span<const int32_t> path) {
    const ops::KeptPath one{&segment, path};
    keep_paths(batch, {&one, 1});
  }
  void clear_page(ops::PageId page);  // of all layers
  // Returns the memory of all pages to the system, if it can be: until they are written again, at
  // the same addresses. False: it cannot (Device::try_release).
  bool try_release();
  void copy_pages(std::span<const ops::PageCopy> copies) {
    ops::copy_pages(device_, storage_, copies);
  }
  void copy_page(ops::PageId from, ops::PageId to) {
    const ops::PageCopy one{from, to};
    copy_pages({&one, 1});
  }

 private:
  const Device device_;
  KvShape shape_;
  at::Tensor storage_;
  at::Tensor tree_;                      // [L, tree rows, 2 K H]
  std::vector<at::Tensor> tree_layers_;  // views of it
};

}  // namespace tlt::kv
