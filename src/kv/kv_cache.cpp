// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace tlt::kv {

int64_t KvShape::page_bytes() const {
  return layers * kv_heads * 2 * head_size * ops::kPageSlots *
         static_cast<int64_t>(c10::elementSize(type));
}

// Zeros, not uninitialized memory: the kernels read whole pages and mask by position, and 0 * NaN
// would not be masked.
KvCache::KvCache(const Device& device, const KvShape& shape, int64_t pages)
    : device_(device),
      shape_(shape),
      storage_(device.lasting_zeros(
          {pages, shape.layers, shape.kv_heads, 2, shape.head_size * ops::kPageSlots},
          shape.type)) {
  TLT_CHECK(pages > 0 && shape.layers > 0 && shape.kv_heads > 0 && shape.head_size > 0);
}

void KvCache::clear_page(ops::PageId page) { storage_.select(0, page).zero_(); }

bool KvCache::try_release() { return device_.try_release(storage_); }

void KvCache::reserve_tree(int64_t rows) {
  if (rows == 0 || (tree_.defined() && tree_.size(1) >= rows)) return;
  const int64_t width = 2 * shape_.kv_heads * shape_.head_size;
  const at::Device device = storage_.device();
  tree_ = at::empty({shape_.layers, rows, width}, at::TensorOptions(device).dtype(shape_.type));
  tree_layers_.clear();
  for (int64_t layer = 0; layer < shape_.layers; ++layer)
    tree_layers_.push_back(tree_.select(0, layer));
}

}  // namespace tlt::kv
