// TapeBatch: the whole sequences of a training pass, and the pages of their KV cache during the
// pass.
//
// Owns       the batch and a KV cache of its own, kept between passes.
// Not here   activations (tape.h, draft_tape.h).
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "kv/kv_cache.h"
#include "ops/batch.h"

namespace tlt::model {

class TapeBatch {
 public:
  void add_sequence(const int32_t* tokens, int32_t count);
  // Appends a sequence that consists of the last one added by add_sequence, as a shared prefix, and
  // these tokens, as a suffix. REQUIRES: the prefix is whole pages.
  void add_suffix(const int32_t* tokens, int32_t count);
  void clear();
  // Also frees the cache.
  void release_memory() {
    clear();
    cache_.reset();
  }

  // Allocates the batch's pages. REQUIRES: the same device and shape at every call.
  void prepare_cache(const Device& device, const kv::KvShape& shape);

  const ops::Batch& batch() const { return batch_; }
  // REQUIRES: prepare_cache() since the last sequence was added.
  const kv::KvCache& cache() const { return *cache_; }

 private:
  ops::Batch batch_;
  // By segment: the pages of its shared prefix, then its own, which are consecutive.
  std::vector<ops::PageId> pages_;
  std::unique_ptr<kv::KvCache> cache_;
  int32_t prefix_ = -1;  // the last segment that is not a suffix
  int64_t used_pages_ = 0;
};

}  // namespace tlt::model
