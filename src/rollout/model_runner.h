// ModelRunner: an engine's passes through the policy model, and the KV cache that they extend.
// TargetModel: the policy model as engines use it, on this worker alone or divided among a tensor
// parallel group.
//
// Owns       (ModelRunner) the KV cache and the activations of a pass.
// Borrows    the policy model, the group.
// Not here   the rows of a pass (scheduler.h), which pages are free (kv/page_pool.h).
// Threading  engine thread only.
//
//   const TargetModel target = *policy;   // or TargetModel(*policy, &group)
//   const auto runner = target.make_runner(/*pages=*/64, /*max_rows=*/256);
//   const at::Tensor& hidden = runner->forward(batch);   // [T, D]
//   runner->logits(hidden, logits);                      // [T, V] float32
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "kv/kv_cache.h"
#include "model/activations.h"
#include "model/policy_model.h"
#include "rollout/graph_cache.h"

namespace tlt::rollout {

class TensorParallelGroup;

class ModelRunner {
 public:
  ModelRunner(const model::PolicyModel& model, const kv::KvShape& shape, int64_t pages,
              int64_t max_rows)
      : cache_(model.device(), shape, pages), activations_(model, max_rows) {}
  virtual ~ModelRunner() = default;

  model::Activations& activations() { return activations_; }
  const kv::KvShape& kv_shape() const { return cache_.shape(); }  // of this worker's cache
  int64_t pages() const { return cache_.pages(); }

  // Final hidden states [T, D], valid until the next pass.
  virtual const at::Tensor& forward(const ops::Batch& batch) = 0;
  // The LM head: hidden [R, D] -> logits [R, V] float32.
  virtual void logits(const at::Tensor& hidden, at::Tensor& out) = 0;
  virtual void copy_pages(std::span<const ops::PageCopy> copies) { cache_.copy_pages(copies); }
  // KvCache::keep_paths(), before the next pass. REQUIRES: the batch of the last one.
  virtual void keep_paths(const ops::Batch& batch, std::span<const ops::KeptPath> paths) {
    cache_.keep_paths(batch, paths);
  }
  // Returns the memory of the cache to the system (KvCache::try_release()), if a pass has written
  // to it since the last time. REQUIRES: no page is held.
  void release_memory() {
    if (std::exchange(has_written_, false)) release_cache();
  }
  // Off the CPU: passes replay graphs from now on, if they can. After Activations::capture().
  virtual void use_graphs() {}
  virtual GraphStats graph_stats() const { return {}; }
  // Writes zeros to these pages.
  virtual void clear_pages(std::span<const ops::PageId> pages) {
    for (const ops::PageId page : pages) cache_.clear_page(page);
  }
  // To be called at least every few seconds while the engine has nothing to do.
  virtual void keep_alive() {}

 protected:
  virtual void release_cache() { cache_.try_release(); }

  kv::KvCache cache_;
  model::Activations activations_;
  bool has_written_ = false;  // to the cache, since release_memory(); set by forward()
};

struct TargetModel {
  // Implicit: wherever an engine takes a target, a model on this worker alone is one.
  // NOLINTNEXTLINE(google-explicit-constructor)
  TargetModel(const model::PolicyModel& model, TensorParallelGroup* group = nullptr)
      : model(model), group(group) {}

  const model::PolicyModel& model;
  TensorParallelGroup* group;  // null: this worker alone. REQUIRES: this worker leads it

  kv::KvShape kv_shape() const;  // of this worker's KV cache
  std::unique_ptr<ModelRunner> make_runner(int64_t pages, int64_t max_rows) const;
};

}  // namespace tlt::rollout
