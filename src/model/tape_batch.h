// TapeBatch: the whole sequences of a training pass, and the pages their keys and values lie in
// while it lasts.
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
  // Appends a sequence that begins with the last one added by add_sequence, and goes on with these.
  // REQUIRES: that one is whole pages.
  void add_branch(const int32_t* tokens, int32_t count);
  void clear();

  // Room for the batch's pages. REQUIRES: the same device and shape at every call.
  void prepare_cache(const Device& device, const kv::KvShape& shape);

  const ops::Batch& batch() const { return batch_; }
  // REQUIRES: prepare_cache() since the last sequence was added.
  const kv::KvCache& cache() const { return *cache_; }

 private:
  ops::Batch batch_;
  // Of each segment: a stem's pages, then its own, which are consecutive.
  std::vector<ops::PageId> pages_;
  std::unique_ptr<kv::KvCache> cache_;
  int32_t stem_ = -1;  // the last segment that is no branch
  int64_t used_pages_ = 0;
};

}  // namespace tlt::model
